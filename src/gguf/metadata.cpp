// The keys and values of a GGUF file, as they stand there.
#include <array>

#include "base/printable.h"
#include "gguf/header.h"

namespace coprime {
namespace {

constexpr uint64_t kMaxKeyBytes = 65535, kMaxTextBytes = 16 << 20;
constexpr auto kTypeNames = std::to_array<std::string_view>(
    {"U8", "I8", "U16", "I16", "U32", "I32", "F32", "a boolean", "a string", "an array", "U64", "I64", "F64"});

GgufType read_type(HeaderReader& reader, const std::string& where) {
  const auto type = reader.scalar<uint32_t>("a value's type");
  if (type >= kTypeNames.size())
    fail(ErrorKind::kModel, "{} has the value type {}; expected 0 to {}", where, type, kTypeNames.size() - 1);
  return static_cast<GgufType>(type);
}

template <class T>
GgufValue whole(GgufType type, T value) {
  GgufValue result;
  result.type = type;
  result.is_integer = std::in_range<int64_t>(value);
  result.integer = result.is_integer ? static_cast<int64_t>(value) : 0;
  result.number = static_cast<double>(value);
  return result;
}

GgufValue real(GgufType type, double value) {
  GgufValue result;
  result.type = type;
  result.number = value;
  return result;
}

// Keeps the place of the elements and passes over them.
GgufValue read_array(HeaderReader& reader, const std::string& where) {
  GgufValue value;
  value.type = GgufType::kArray;
  value.element = read_type(reader, where);
  value.count = reader.scalar<uint64_t>("an array's length");
  value.offset = reader.position();
  if (value.element == GgufType::kArray)
    fail(ErrorKind::kModel, "{} is an array of arrays, which no known key is; not a sound file", where);
  const bool strings = value.element == GgufType::kString;
  const uint64_t each = strings ? sizeof(uint64_t) : gguf_scalar_bytes(value.element);
  if (value.count > reader.left() / each) {
    fail(ErrorKind::kModel, "{} claims {} elements, and {} bytes follow; not a sound file, or cut short", where,
         value.count, reader.left());
  }
  if (!strings) {
    reader.skip(value.count * each, "an array");
  } else {
    for (uint64_t i = 0; i < value.count; ++i) reader.skip(reader.scalar<uint64_t>("a string's length"), "a string");
  }
  return value;
}

GgufValue read_value(HeaderReader& reader, const std::string& where) {
  const GgufType type = read_type(reader, where);
  if (type == GgufType::kArray) return read_array(reader, where);
  if (type != GgufType::kString) return read_gguf_scalar(reader, type, where);
  GgufValue value;
  value.type = type;
  value.text = reader.text("a string", kMaxTextBytes);
  return value;
}

}  // namespace

std::string_view gguf_type_name(GgufType type) { return kTypeNames.at(static_cast<size_t>(type)); }

uint64_t gguf_scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return 0;
}

GgufValue read_gguf_scalar(HeaderReader& reader, GgufType type, const std::string& where) {
  constexpr std::string_view kWhat = "a value";
  switch (type) {
    case GgufType::kU8:
      return whole(type, reader.scalar<uint8_t>(kWhat));
    case GgufType::kI8:
      return whole(type, reader.scalar<int8_t>(kWhat));
    case GgufType::kU16:
      return whole(type, reader.scalar<uint16_t>(kWhat));
    case GgufType::kI16:
      return whole(type, reader.scalar<int16_t>(kWhat));
    case GgufType::kU32:
      return whole(type, reader.scalar<uint32_t>(kWhat));
    case GgufType::kI32:
      return whole(type, reader.scalar<int32_t>(kWhat));
    case GgufType::kU64:
      return whole(type, reader.scalar<uint64_t>(kWhat));
    case GgufType::kI64:
      return whole(type, reader.scalar<int64_t>(kWhat));
    case GgufType::kF32:
      return real(type, double{reader.scalar<float>(kWhat)});
    case GgufType::kF64:
      return real(type, reader.scalar<double>(kWhat));
    default:
      break;
  }
  const auto truth = reader.scalar<uint8_t>(kWhat);
  if (truth > 1) fail(ErrorKind::kModel, "{} is the boolean {}; expected 0 or 1", where, truth);
  return whole(type, truth);
}

GgufMetadata read_gguf_metadata(HeaderReader& reader, uint64_t count, const std::string& file) {
  GgufMetadata metadata;
  for (uint64_t i = 0; i < count; ++i) {
    std::string key = reader.text("a key", kMaxKeyBytes);
    const std::string where = fmt::format("{}: {}", file, printable(key));
    GgufValue value = read_value(reader, where);
    if (!metadata.emplace(std::move(key), std::move(value)).second)
      fail(ErrorKind::kModel, "{} stands there twice; the file is damaged or forged", where);
  }
  return metadata;
}

}  // namespace coprime
