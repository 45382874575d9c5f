// Programs in the background, and what they need: a folder, keys, a port.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace coprime {

// On the loopback; nobody else has it at this moment.
std::string free_port();

// A folder of the test's own; removed with the object.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  std::string file(const std::string& name) const { return path_ / name; }
  std::string key(const std::string& name) const;  // a new key's file
  std::string write(const std::string& name, const std::string& text) const;
  static std::string read(const std::string& path);

 private:
  std::filesystem::path path_;
};

// A process of the program in the background, with what it says on standard error in a file. Killed with the object.
class Running {
 public:
  Running(const std::vector<std::string>& words, const std::string& log);
  ~Running();
  // Its exit code, 128 + signal for a death by one.
  int end(int signal = 0);
  bool says(const std::string& words, int within_ms = 20'000) const;
  std::string log() const { return Scratch::read(log_); }
  pid_t pid() const { return pid_; }

 private:
  std::string log_;
  pid_t pid_ = -1;
};

}  // namespace coprime
