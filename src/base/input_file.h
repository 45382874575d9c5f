// A file that is read by byte ranges, by pread (no mapping: a file that shrinks is an error, not a signal).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/unique_fd.h"

namespace coprime {

class InputFile {
 public:
  // Error(kModel) for what is no regular file, or cannot be read.
  static InputFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }  // when it was opened

  // Error(kModel) if the file no longer holds the range.
  void read(uint64_t offset, std::span<std::byte> into) const;

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
  uint64_t bytes_ = 0;
};

}  // namespace coprime
