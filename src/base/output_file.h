// A file that is written whole or not at all: beside its place first, then renamed into it, so that what was there
// stays until there is something better.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/unique_fd.h"

namespace coprime {

// The file while it is written; if it is not finished, nothing is left behind. Errors as of write_output().
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& target);
  OutputFile(const OutputFile&) = delete;
  ~OutputFile();

  void write(std::span<const std::byte> bytes);  // behind what was written last
  void write_at(uint64_t offset, std::span<const std::byte> bytes);
  void finish();  // into its place

 private:
  std::filesystem::path target_, path_;
  UniqueFd fd_;
};

// Error(kModel) when no file can be written there, as far as can be told before there is anything to write: there is no
// such folder, or it may not be written to, or the name is that of a device, a link or a folder.
void check_output(const std::filesystem::path& path);

// The parts, one behind the other. Error(kModel) as above, and when the disk is full; nothing is left behind then.
void write_output(const std::filesystem::path& path, std::span<const std::span<const std::byte>> parts);
void write_output(const std::filesystem::path& path, std::string_view text);

}  // namespace coprime
