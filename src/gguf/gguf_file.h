// One GGUF file: its metadata and its tensors, checked in full before anything is believed.
//
// Arrays of the metadata stay in the file until they are asked for: only their places are kept. So opening needs little
// memory, whatever the file claims. Refused are versions other than 2 and 3, big-endian files, arrays of arrays, keys
// or tensors that stand twice, types that nobody knows, tensors that overlap, leave holes or reach past the end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/input_file.h"
#include "tensor/tensor_info.h"

namespace coprime {

// As the file numbers them.
enum class GgufType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };
std::string_view gguf_type_name(GgufType type);

struct GgufValue {
  GgufType type = GgufType::kU8;
  int64_t integer = 0;      // integers and booleans; a U64 from 2^63 on stands in `number` alone
  double number = 0;        // of every scalar
  bool is_integer = false;  // `integer` holds it
  std::string text;
  // An array's elements, in the file.
  GgufType element = GgufType::kU8;
  uint64_t count = 0, offset = 0;
};

class GgufFile {
 public:
  // Error(kModel) for anything that is not a well-formed GGUF file, naming path and what was found.
  static GgufFile open(const std::filesystem::path& path);

  const InputFile& input() const { return input_; }
  const std::filesystem::path& path() const { return input_.path(); }
  std::span<const TensorInfo> tensors() const { return tensors_; }  // by place
  const TensorInfo* find(std::string_view name) const;

  // "model.gguf: llama.block_count"
  std::string where(std::string_view key) const;
  bool has(std::string_view key) const { return metadata_.contains(key); }

  // A key's value; nothing where the key is absent. Error(kModel) for another type, and for what lies outside the
  // range.
  std::optional<std::string> string(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;  // finite; of any float or integer type
  std::optional<int64_t> integer(std::string_view key, int64_t min, int64_t max) const;  // of any integer type
  int64_t required_integer(std::string_view key, int64_t min, int64_t max) const;
  double required_number(std::string_view key) const;

  // Arrays, read now; of integers also one of booleans. Error(kModel) also for more than kMaxElements.
  static constexpr uint64_t kMaxElements = 1 << 24;
  std::optional<std::vector<std::string>> strings(std::string_view key) const;
  std::optional<std::vector<int64_t>> integers(std::string_view key) const;
  std::optional<uint64_t> array_size(std::string_view key) const;

 private:
  const GgufValue* value(std::string_view key) const;
  const GgufValue* array(std::string_view key, std::string_view expected) const;
  [[noreturn]] void wrong(std::string_view key, const GgufValue& found, std::string_view expected) const;

  InputFile input_;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<TensorInfo> tensors_;
};

}  // namespace coprime
