// One safetensors file: its header, checked in full before anything is believed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/input_file.h"
#include "tensor/tensor_info.h"

namespace coprime {

class SafetensorsFile {
 public:
  // Error(kModel) for anything that is not a well-formed safetensors file, naming path and what was found.
  static SafetensorsFile open(const std::filesystem::path& path);

  const InputFile& input() const { return input_; }
  const std::filesystem::path& path() const { return input_.path(); }
  std::span<const TensorInfo> tensors() const { return tensors_; }
  const TensorInfo* find(std::string_view name) const;

  // Error(kModel) if the file no longer holds the range.
  void read(uint64_t offset, std::span<std::byte> into) const { input_.read(offset, into); }

 private:
  InputFile input_;
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
