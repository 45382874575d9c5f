// Runs the built program as a person would, and tells what came of it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace coprime {

struct ProgramResult {
  int exit_code = -1;  // 128 + signal for a death by signal
  std::string out, err;
  double seconds = 0;
};

// `setup` runs in the child before exec (limits, signals).
ProgramResult run_program(const std::vector<std::string>& arguments, void (*setup)() = nullptr);

// Processes whose parent is `parent`, zombies apart.
std::vector<pid_t> children_of(pid_t parent);
bool is_alive(pid_t pid);      // and no zombie
int64_t cpu_ticks(pid_t pid);  // of processor time that it has used: hundredths of a second; 0 when it is not there

// A scratch copy of a model that a test may damage; removed with the object.
class ModelCopy {
 public:
  explicit ModelCopy(const std::filesystem::path& from);
  ~ModelCopy();
  const std::filesystem::path& path() const { return path_; }
  std::string read(const std::string& file) const;
  void write(const std::string& file, const std::string& text) const;
  // Replaces the first occurrence; the test fails if there is none.
  void edit(const std::string& file, const std::string& from, const std::string& to) const;

 private:
  std::filesystem::path path_;
};

}  // namespace coprime
