// One safetensors file: its header, checked in full before anything is believed, and reads of byte ranges by pread (no
// mapping: a file that shrinks is an error, not a signal).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "tensor/dtype.h"

namespace coprime {

struct TensorInfo {
  std::string name;
  std::string type_name;  // as the file spells it: "BF16", "F8_E4M3"
  DType type = DType::kOther;
  std::vector<int64_t> shape;
  uint64_t offset = 0, bytes = 0;  // from the start of the file
};

class SafetensorsFile {
 public:
  // Error(kModel) for anything that is not a well-formed safetensors file, naming path and what was found.
  static SafetensorsFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::span<const TensorInfo> tensors() const { return tensors_; }
  const TensorInfo* find(std::string_view name) const;

  // Error(kModel) if the file no longer holds the range.
  void read(uint64_t offset, std::span<std::byte> into) const;

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
  std::vector<TensorInfo> tensors_;
};

// The header's parser alone, for fuzzing: `file_bytes` is the whole file's size, `header` the JSON after the 8-byte
// length.
std::vector<TensorInfo> parse_safetensors_header(std::string_view header, uint64_t file_bytes,
                                                 const std::string& where);

struct TensorToWrite {
  std::string name;
  DType type = DType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

// Writes beside `path` and renames over it, so that a failure leaves no half file. Error(kModel) with the reason (disk
// full).
void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors);

}  // namespace coprime
