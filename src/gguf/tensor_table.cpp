// The tensors of a GGUF file's header: names, shapes, types and places.
#include <algorithm>
#include <array>
#include <unordered_set>

#include "base/printable.h"
#include "gguf/header.h"

namespace coprime {
namespace {

constexpr uint64_t kMaxNameBytes = 65535;
constexpr uint32_t kMaxDims = 4;

struct FileType {
  uint32_t id;
  std::string_view name;
  DType type;
  BlockShape block;
};

constexpr FileType known(uint32_t id, DType type) { return {id, dtype_name(type), type, block_shape(type)}; }

// Every type of the format. Those that nothing here computes with are kOther: known, sized, and refused only where
// used.
constexpr auto kFileTypes = std::to_array<FileType>({
    known(0, DType::kF32),
    known(1, DType::kF16),
    known(2, DType::kQ4_0),
    known(3, DType::kQ4_1),
    known(6, DType::kQ5_0),
    known(7, DType::kQ5_1),
    known(8, DType::kQ8_0),
    {9, "Q8_1", DType::kOther, {32, 40}},
    known(10, DType::kQ2_K),
    known(11, DType::kQ3_K),
    known(12, DType::kQ4_K),
    known(13, DType::kQ5_K),
    known(14, DType::kQ6_K),
    {15, "Q8_K", DType::kOther, {256, 292}},
    {16, "IQ2_XXS", DType::kOther, {256, 66}},
    {17, "IQ2_XS", DType::kOther, {256, 74}},
    {18, "IQ3_XXS", DType::kOther, {256, 98}},
    {19, "IQ1_S", DType::kOther, {256, 50}},
    {20, "IQ4_NL", DType::kOther, {32, 18}},
    {21, "IQ3_S", DType::kOther, {256, 110}},
    {22, "IQ2_S", DType::kOther, {256, 82}},
    {23, "IQ4_XS", DType::kOther, {256, 136}},
    {24, "I8", DType::kOther, {1, 1}},
    {25, "I16", DType::kOther, {1, 2}},
    known(26, DType::kI32),
    known(27, DType::kI64),
    {28, "F64", DType::kOther, {1, 8}},
    {29, "IQ1_M", DType::kOther, {256, 56}},
    known(30, DType::kBF16),
    {34, "TQ1_0", DType::kOther, {256, 54}},
    {35, "TQ2_0", DType::kOther, {256, 66}},
    known(39, DType::kMxfp4),
    {40, "NVFP4", DType::kOther, {64, 36}},
    {41, "Q1_0", DType::kOther, {128, 18}},
});

const FileType& file_type(uint32_t id, const std::string& where) {
  for (const FileType& type : kFileTypes) {
    if (type.id == id) return type;
  }
  fail(ErrorKind::kModel, "{} has the type {}; no such type is known", where, id);
}

uint64_t bytes_of(const std::vector<int64_t>& shape, const FileType& type, const std::string& where) {
  const int64_t columns = shape.back();
  if (columns % type.block.elements != 0) {
    fail(ErrorKind::kModel, "{} has rows of {} elements; {} needs a multiple of {}", where, columns, type.name,
         type.block.elements);
  }
  auto bytes = static_cast<uint64_t>(type.block.bytes);
  bool fits = !__builtin_mul_overflow(bytes, static_cast<uint64_t>(columns / type.block.elements), &bytes);
  for (size_t i = 0; i + 1 < shape.size(); ++i)
    fits = fits && !__builtin_mul_overflow(bytes, static_cast<uint64_t>(shape[i]), &bytes);
  if (!fits || bytes > uint64_t{INT64_MAX})
    fail(ErrorKind::kModel, "{} of shape [{}] is larger than any file", where, fmt::join(shape, ", "));
  return bytes;
}

// Its offset is still counted from the start of the data.
TensorInfo read_tensor(HeaderReader& reader, uint64_t alignment, const std::string& file) {
  TensorInfo info;
  info.name = reader.text("a tensor's name", kMaxNameBytes);
  const std::string where = fmt::format("{}: tensor {}", file, printable(info.name));
  const auto dims = reader.scalar<uint32_t>("a tensor's axes");
  if (dims < 1 || dims > kMaxDims) fail(ErrorKind::kModel, "{} has {} axes; expected 1 to {}", where, dims, kMaxDims);
  for (uint32_t i = 0; i < dims; ++i) {
    const auto size = reader.scalar<uint64_t>("a tensor's shape");
    if (size < 1 || size > uint64_t{INT64_MAX})
      fail(ErrorKind::kModel, "{} has an axis of {} elements; expected at least one, and no more than fit", where,
           size);
    info.shape.push_back(static_cast<int64_t>(size));
  }
  std::ranges::reverse(info.shape);  // the file has the contiguous axis first
  const FileType& type = file_type(reader.scalar<uint32_t>("a tensor's type"), where);
  info.type = type.type;
  info.type_name = type.name;
  info.bytes = bytes_of(info.shape, type, where);
  info.offset = reader.scalar<uint64_t>("a tensor's offset");
  if (info.offset % alignment != 0)
    fail(ErrorKind::kModel, "{} starts at byte {} of the data; expected a multiple of {}", where, info.offset,
         alignment);
  return info;
}

uint64_t round_up(uint64_t value, uint64_t alignment) { return (value + alignment - 1) / alignment * alignment; }

// Each tensor begins where the one before it ends, aligned: no overlap, no hole, none past the end of the file.
void place(std::vector<TensorInfo>* tensors, uint64_t data_start, uint64_t alignment, const InputFile& file) {
  std::ranges::sort(*tensors, {}, &TensorInfo::offset);
  const std::string path = file.path().string();
  const uint64_t data_bytes = file.bytes() - std::min(file.bytes(), data_start);
  uint64_t end = 0;
  for (TensorInfo& tensor : *tensors) {
    const uint64_t expected = round_up(end, alignment);
    if (tensor.offset != expected) {
      fail(ErrorKind::kModel, "{}: tensor {} starts at byte {} of the data; expected {} ({})", path,
           printable(tensor.name), tensor.offset, expected, tensor.offset < expected ? "tensors overlap" : "a hole");
    }
    if (tensor.offset > data_bytes || tensor.bytes > data_bytes - tensor.offset) {
      fail(ErrorKind::kModel, "{}: tensor {} has {} bytes at byte {} of {} bytes of data; is the file cut short?", path,
           printable(tensor.name), tensor.bytes, tensor.offset, data_bytes);
    }
    end = tensor.offset + tensor.bytes;
    tensor.offset += data_start;
  }
}

}  // namespace

std::vector<TensorInfo> read_gguf_tensors(HeaderReader& reader, uint64_t count, uint64_t alignment,
                                          const InputFile& file) {
  std::vector<TensorInfo> tensors;
  std::unordered_set<std::string> names;
  for (uint64_t i = 0; i < count; ++i) {
    tensors.push_back(read_tensor(reader, alignment, file.path().string()));
    if (!names.insert(tensors.back().name).second) {
      fail(ErrorKind::kModel, "{}: tensor {} stands there twice; the file is damaged or forged", file.path().string(),
           printable(tensors.back().name));
    }
  }
  place(&tensors, round_up(reader.position(), alignment), alignment, file);
  return tensors;
}

}  // namespace coprime
