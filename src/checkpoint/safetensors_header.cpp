#include <algorithm>
#include <array>
#include <unordered_set>

#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "json/json.h"

namespace coprime {
namespace {

struct FileType {
  std::string_view name;
  DType type;
  int bits;
};

// Every type of the format. Those that nothing here computes with are kOther: known, sized, and refused only where
// used.
constexpr auto kFileTypes = std::to_array<FileType>({
    {"F32", DType::kF32, 32},       {"F16", DType::kF16, 16},       {"BF16", DType::kBF16, 16},
    {"I32", DType::kI32, 32},       {"I64", DType::kI64, 64},       {"U8", DType::kU8, 8},
    {"BOOL", DType::kOther, 8},     {"I8", DType::kOther, 8},       {"F8_E5M2", DType::kOther, 8},
    {"F8_E4M3", DType::kF8E4M3, 8}, {"F8_E8M0", DType::kF8E8M0, 8}, {"I16", DType::kOther, 16},
    {"U16", DType::kOther, 16},     {"U32", DType::kOther, 32},     {"F64", DType::kOther, 64},
    {"U64", DType::kOther, 64},     {"C64", DType::kOther, 64},     {"F4", DType::kOther, 4},
    {"F6_E2M3", DType::kOther, 6},  {"F6_E3M2", DType::kOther, 6},
});

class HeaderReader {
 public:
  HeaderReader(uint64_t data_start, uint64_t file_bytes, const std::string& where)
      : data_start_(data_start), data_bytes_(file_bytes - data_start), where_(where) {}

  TensorInfo tensor(std::string_view name, const JsonObject& entry) const {
    TensorInfo info;
    info.name = name;
    const FileType& type = file_type(info.name, entry);
    info.type_name = type.name;
    info.type = type.type;
    info.shape = shape(info.name, entry);
    const auto [begin, end] = offsets(info.name, entry);
    info.offset = data_start_ + begin;
    info.bytes = end - begin;
    const uint64_t expected = size_of(info, type.bits);
    if (info.bytes != expected) {
      fail(ErrorKind::kModel, "{}: tensor {} has {} bytes; {} of shape [{}] needs {}", where_, printable(name),
           info.bytes, type.name, fmt::join(info.shape, ", "), expected);
    }
    return info;
  }

  // In order of place, without a hole or an overlap, to the last byte.
  void check_tiling(std::vector<TensorInfo>* tensors) const {
    std::ranges::sort(*tensors, [](const TensorInfo& a, const TensorInfo& b) {
      return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
    });
    uint64_t at = data_start_;
    for (const TensorInfo& tensor : *tensors) {
      if (tensor.offset != at) {
        fail(ErrorKind::kModel, "{}: tensor {} starts at byte {} of the data; expected {} ({})", where_,
             printable(tensor.name), tensor.offset - data_start_, at - data_start_,
             tensor.offset < at ? "tensors overlap" : "a hole");
      }
      at += tensor.bytes;
    }
    if (at != data_start_ + data_bytes_) {
      fail(ErrorKind::kModel, "{}: the tensors have {} bytes; the file holds {} bytes of data; is it cut short?",
           where_, at - data_start_, data_bytes_);
    }
  }

 private:
  const FileType& file_type(const std::string& name, const JsonObject& entry) const {
    const auto word = entry.string("dtype");
    for (const FileType& type : kFileTypes) {
      if (word && *word == type.name) return type;
    }
    fail(ErrorKind::kModel, "{}: tensor {} has the dtype {}; no such type is known", where_, printable(name),
         word ? printable(*word) : "missing");
  }

  std::vector<int64_t> shape(const std::string& name, const JsonObject& entry) const {
    const auto list = entry.array("shape");
    if (!list) fail(ErrorKind::kModel, "{}: tensor {} has no shape", where_, printable(name));
    std::vector<int64_t> sizes;
    for (simdjson::dom::element item : *list) sizes.push_back(static_cast<int64_t>(unsigned_of(name, "shape", item)));
    return sizes;
  }

  std::pair<uint64_t, uint64_t> offsets(const std::string& name, const JsonObject& entry) const {
    const auto list = entry.array("data_offsets");
    if (!list || list->size() != 2) {
      fail(ErrorKind::kModel, "{}: tensor {} has no pair of data_offsets", where_, printable(name));
    }
    const uint64_t begin = unsigned_of(name, "data_offsets", list->at(0).value_unsafe());
    const uint64_t end = unsigned_of(name, "data_offsets", list->at(1).value_unsafe());
    if (begin > end || end > data_bytes_) {
      fail(ErrorKind::kModel, "{}: tensor {} lies at [{}, {}) of {} bytes of data; is the file cut short?", where_,
           printable(name), begin, end, data_bytes_);
    }
    return {begin, end};
  }

  uint64_t unsigned_of(const std::string& name, std::string_view key, simdjson::dom::element item) const {
    uint64_t number = 0;
    const bool whole = item.is_int64() || item.is_uint64();
    if (!whole || item.get(number) != simdjson::SUCCESS || number > uint64_t{INT64_MAX}) {
      fail(ErrorKind::kModel, "{}: {} of tensor {} holds {}; expected whole numbers from 0", where_, key,
           printable(name), describe(item));
    }
    return number;
  }

  uint64_t size_of(const TensorInfo& info, int bits) const {
    uint64_t total = static_cast<uint64_t>(bits);
    for (int64_t size : info.shape) {
      if (__builtin_mul_overflow(total, static_cast<uint64_t>(size), &total)) {
        fail(ErrorKind::kModel, "{}: tensor {} of shape [{}] is larger than any file", where_, printable(info.name),
             fmt::join(info.shape, ", "));
      }
    }
    if (total % 8 != 0) {
      fail(ErrorKind::kModel, "{}: tensor {} of {} bits is no whole number of bytes", where_, printable(info.name),
           total);
    }
    return total / 8;
  }

  uint64_t data_start_, data_bytes_;
  const std::string& where_;
};

void check_metadata(const JsonObject& metadata) {
  for (const auto& field : metadata.raw()) {
    if (!field.value.is_string()) {
      fail(ErrorKind::kModel, "{} is {}; expected a string", metadata.path(printable(field.key)),
           describe(field.value));
    }
  }
}

}  // namespace

std::vector<TensorInfo> parse_safetensors_header(std::string_view header, uint64_t file_bytes,
                                                 const std::string& where) {
  const uint64_t data_start = 8 + header.size();
  if (file_bytes < data_start) {
    fail(ErrorKind::kModel, "{}: {} bytes; its header alone needs {}; is it cut short?", where, file_bytes, data_start);
  }
  const JsonDocument document(header, where);
  const JsonObject root = document.root();
  const HeaderReader reader(data_start, file_bytes, where);
  std::vector<TensorInfo> tensors;
  for (const auto& field : root.raw()) {
    simdjson::dom::object object;
    if (field.value.get(object) != simdjson::SUCCESS) {
      fail(ErrorKind::kModel, "{} is {}; expected an object", root.path(printable(field.key)), describe(field.value));
    }
    const JsonObject entry(object, root.path(printable(field.key)) + ".");
    if (field.key == "__metadata__") {
      check_metadata(entry);
    } else {
      tensors.push_back(reader.tensor(field.key, entry));
    }
  }
  reader.check_tiling(&tensors);
  return tensors;
}

}  // namespace coprime
