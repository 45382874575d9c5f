#include "gguf/gguf_file.h"

#include <bit>
#include <cmath>

#include "base/error.h"
#include "base/printable.h"
#include "gguf/header.h"

namespace coprime {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF holds little-endian numbers, read as they are");

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr int64_t kDefaultAlignment = 32, kMaxAlignment = 1 << 16;
// The least that a key with its value, and a tensor, take in the header.
constexpr uint64_t kMinKeyBytes = 8 + 4 + 1, kMinTensorBytes = 8 + 4 + 8 + 4 + 8;

void check_version(uint32_t version, const std::string& path) {
  if (version == 2 || version == 3) return;
  const uint32_t swapped = __builtin_bswap32(version);
  if (swapped == 2 || swapped == 3)
    fail(ErrorKind::kModel, "{}: a big-endian GGUF file; supported: little-endian ones", path);
  fail(ErrorKind::kModel, "{}: GGUF version {}; supported: 2 and 3", path, version);
}

void check_count(uint64_t count, uint64_t least_bytes, std::string_view what, const HeaderReader& reader,
                 const std::string& path) {
  if (count <= reader.left() / least_bytes) return;
  fail(ErrorKind::kModel, "{}: claims {} {} in the {} bytes that follow; not a sound file, or cut short", path, count,
       what, reader.left());
}

std::string describe(const GgufValue& value) {
  if (value.type == GgufType::kString) return fmt::format("the string \"{}\"", printable(value.text));
  if (value.type == GgufType::kArray)
    return fmt::format("an array of {} of type {}", value.count, gguf_type_name(value.element));
  if (value.is_integer) return fmt::format("{} ({})", value.integer, gguf_type_name(value.type));
  return fmt::format("{} ({})", value.number, gguf_type_name(value.type));
}

}  // namespace

GgufFile GgufFile::open(const std::filesystem::path& path) {
  GgufFile file;
  file.input_ = InputFile::open(path);
  const std::string where = path.string();
  HeaderReader reader(file.input_);
  if (reader.scalar<uint32_t>("the magic number") != kMagic)
    fail(ErrorKind::kModel, "{}: does not begin with \"GGUF\"; expected a GGUF file, or a folder of safetensors",
         where);
  check_version(reader.scalar<uint32_t>("the version"), where);
  const auto num_tensors = reader.scalar<uint64_t>("the number of tensors");
  const auto num_keys = reader.scalar<uint64_t>("the number of keys");
  check_count(num_tensors, kMinTensorBytes, "tensors", reader, where);
  check_count(num_keys, kMinKeyBytes, "keys", reader, where);
  file.metadata_ = read_gguf_metadata(reader, num_keys, where);
  const int64_t alignment = file.integer("general.alignment", INT64_MIN, INT64_MAX).value_or(kDefaultAlignment);
  if (alignment < 1 || alignment > kMaxAlignment || !std::has_single_bit(static_cast<uint64_t>(alignment))) {
    fail(ErrorKind::kModel, "{} is {}; expected a power of two up to {}", file.where("general.alignment"), alignment,
         kMaxAlignment);
  }
  file.tensors_ = read_gguf_tensors(reader, num_tensors, static_cast<uint64_t>(alignment), file.input_);
  return file;
}

const TensorInfo* GgufFile::find(std::string_view name) const {
  for (const TensorInfo& tensor : tensors_) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

std::string GgufFile::where(std::string_view key) const {
  return fmt::format("{}: {}", path().string(), printable(key));
}

const GgufValue* GgufFile::value(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

void GgufFile::wrong(std::string_view key, const GgufValue& found, std::string_view expected) const {
  fail(ErrorKind::kModel, "{} is {}; expected {}", where(key), describe(found), expected);
}

std::optional<std::string> GgufFile::string(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  if (found->type != GgufType::kString) wrong(key, *found, "a string");
  return found->text;
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  if (found->type != GgufType::kBool) wrong(key, *found, "a boolean");
  return found->integer != 0;
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  const bool scalar = gguf_scalar_bytes(found->type) > 0 && found->type != GgufType::kBool;
  if (!scalar || !std::isfinite(found->number)) wrong(key, *found, "a finite number");
  return found->number;
}

std::optional<int64_t> GgufFile::integer(std::string_view key, int64_t min, int64_t max) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_integer || found->type == GgufType::kBool || found->integer < min || found->integer > max)
    wrong(key, *found, min == INT64_MIN ? "an integer" : fmt::format("an integer in {}..{}", min, max));
  return found->integer;
}

int64_t GgufFile::required_integer(std::string_view key, int64_t min, int64_t max) const {
  const auto found = integer(key, min, max);
  if (!found) fail(ErrorKind::kModel, "{} is missing; expected an integer in {}..{}", where(key), min, max);
  return *found;
}

double GgufFile::required_number(std::string_view key) const {
  const auto found = number(key);
  if (!found) fail(ErrorKind::kModel, "{} is missing; expected a number", where(key));
  return *found;
}

const GgufValue* GgufFile::array(std::string_view key, std::string_view expected) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return nullptr;
  if (found->type != GgufType::kArray) wrong(key, *found, expected);
  if (found->count > kMaxElements) wrong(key, *found, fmt::format("at most {} elements", kMaxElements));
  return found;
}

std::optional<std::vector<std::string>> GgufFile::strings(std::string_view key) const {
  constexpr std::string_view kExpected = "an array of strings";
  const GgufValue* found = array(key, kExpected);
  if (found == nullptr) return std::nullopt;
  if (found->element != GgufType::kString) wrong(key, *found, kExpected);
  HeaderReader reader(input_, found->offset);
  std::vector<std::string> values;
  values.reserve(found->count);
  for (uint64_t i = 0; i < found->count; ++i) values.push_back(reader.text("a string", input_.bytes()));
  return values;
}

std::optional<std::vector<int64_t>> GgufFile::integers(std::string_view key) const {
  constexpr std::string_view kExpected = "an array of integers";
  const GgufValue* found = array(key, kExpected);
  if (found == nullptr) return std::nullopt;
  HeaderReader reader(input_, found->offset);
  std::vector<int64_t> values;
  for (uint64_t i = 0; i < found->count; ++i) {
    if (gguf_scalar_bytes(found->element) == 0) wrong(key, *found, kExpected);
    const GgufValue element = read_gguf_scalar(reader, found->element, where(key));
    if (!element.is_integer) wrong(key, *found, kExpected);
    values.push_back(element.integer);
  }
  return values;
}

std::optional<uint64_t> GgufFile::array_size(std::string_view key) const {
  const GgufValue* found = array(key, "an array");
  return found == nullptr ? std::nullopt : std::optional(found->count);
}

}  // namespace coprime
