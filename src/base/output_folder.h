// A folder that appears whole or not at all: NAME.partial beside its place first, then renamed into it.
#pragma once

#include <filesystem>
#include <string>

namespace coprime {

// If it is not finished, nothing is left behind, but of a process that is killed: its NAME.partial is then refused
// until somebody deletes it.
class OutputFolder {
 public:
  // Makes NAME.partial, and the folders above it. Error(kUsage) where `target` is there and is no empty folder, or
  // where NAME.partial is there; Error(kModel) where none can be made.
  explicit OutputFolder(const std::filesystem::path& target);
  OutputFolder(const OutputFolder&) = delete;
  ~OutputFolder();

  const std::filesystem::path& path() const { return path_; }  // while it is written
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  void finish();  // into its place

 private:
  std::filesystem::path target_, path_;
};

}  // namespace coprime
