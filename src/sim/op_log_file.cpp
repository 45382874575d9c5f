#include "sim/op_log_file.h"

#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <span>
#include <tuple>
#include <type_traits>

#include "base/error.h"
#include "base/hash.h"
#include "base/input_file.h"
#include "base/output_file.h"
#include "base/printable.h"

namespace coprime::sim {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::array<char, 16> kMagic = {'c', 'o', 'p', 'r', 'i', 'm', 'e', ' ', 'o', 'p', '_', 'l', 'o', 'g', '\n', 0};
constexpr uint32_t kVersion = 1;
constexpr uint32_t kMostHeader = 1 << 20;

// Every column with its name, in the order of the file.
template <class Log, class Use>
void for_each_column(Log& log, const Use& use) {
  use("start", log.start);
  use("end", log.end);
  use("bytes", log.bytes);
  use("macs", log.macs);
  use("op", log.op);
  use("cause_op", log.cause_op);
  use("pe", log.pe);
  use("line", log.line);
  use("kind", log.kind);
  use("cause", log.cause);
}

constexpr uint64_t padded(uint64_t bytes) { return (bytes + 7) / 8 * 8; }

struct Writer {
  std::string bytes;
  template <class Number>
  void number(Number value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view value) {
    number(static_cast<uint32_t>(value.size()));
    bytes.append(value);
  }
};

// Reads the header's bytes in order; what does not fit in it is an error.
class HeaderReader {
 public:
  HeaderReader(const std::string& where, std::span<const std::byte> bytes) : where_(where), bytes_(bytes) {}

  template <class Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text(uint64_t size) {
    const auto part = take(size);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }

 private:
  std::span<const std::byte> take(uint64_t size) {
    if (size > bytes_.size())
      fail(ErrorKind::kModel, "{}: its header ends within a value; the file is damaged: write it again", where_);
    const auto part = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return part;
  }

  const std::string& where_;
  std::span<const std::byte> bytes_;
};

}  // namespace

uint64_t op_log_hash(const OpLog& log) {
  uint64_t hash = log.size();
  for_each_column(log,
                  [&](const char*, const auto& column) { hash = hash_bytes(std::as_bytes(std::span(column)), hash); });
  return hash;
}

void write_op_log(const std::filesystem::path& path, const OpLogFile& file) {
  Writer header;
  header.bytes.append(kMagic.data(), kMagic.size());
  header.number(kVersion);
  header.number(uint32_t{0});  // its own size, put in below
  header.number(static_cast<uint64_t>(file.log.size()));
  header.number(op_log_hash(file.log));
  header.text(file.chip);
  header.text(file.run);
  uint32_t columns = 0;
  for_each_column(file.log, [&](const char*, const auto&) { ++columns; });
  header.number(columns);
  for_each_column(file.log, [&](const char* name, const auto& column) {
    header.number(static_cast<uint8_t>(sizeof column[0]));
    header.number(static_cast<uint8_t>(std::strlen(name)));
    header.bytes.append(name);
  });
  header.bytes.resize(padded(header.bytes.size()));
  const auto size = static_cast<uint32_t>(header.bytes.size());
  std::memcpy(header.bytes.data() + kMagic.size() + sizeof kVersion, &size, sizeof size);

  OutputFile output(path);
  output.write(std::as_bytes(std::span(header.bytes)));
  for_each_column(file.log, [&](const char*, const auto& column) {
    constexpr std::array<std::byte, 8> kZeros = {};
    const auto bytes = std::as_bytes(std::span(column));
    output.write(bytes);
    output.write(std::span(kZeros).first(padded(bytes.size()) - bytes.size()));
  });
  output.finish();
}

OpLogFile read_op_log(const std::filesystem::path& path) {
  const InputFile input = InputFile::open(path);
  const std::string where = path.string();
  constexpr size_t kFixed = kMagic.size() + 2 * sizeof(uint32_t) + 2 * sizeof(uint64_t);
  std::vector<std::byte> bytes(std::min<uint64_t>(input.bytes(), kFixed));
  input.read(0, bytes);
  if (bytes.size() < kFixed || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    fail(ErrorKind::kModel, "{}: no op_log; expected a file of coprime sim run --oplog", where);
  HeaderReader fixed(where, std::span(bytes).subspan(kMagic.size()));
  const auto version = fixed.number<uint32_t>();
  if (version != kVersion)
    fail(ErrorKind::kModel, "{}: an op_log of version {}; expected {}: run the simulation again", where, version,
         kVersion);
  const auto header_bytes = fixed.number<uint32_t>();
  const auto rows = fixed.number<uint64_t>(), hash = fixed.number<uint64_t>();
  if (header_bytes < kFixed || header_bytes > kMostHeader || header_bytes > input.bytes())
    fail(ErrorKind::kModel, "{}: a header of {} bytes in a file of {}; the file is damaged: write it again", where,
         header_bytes, input.bytes());
  bytes.resize(header_bytes - kFixed);
  input.read(kFixed, bytes);

  OpLogFile file;
  HeaderReader header(where, bytes);
  file.chip = header.text(header.number<uint32_t>());
  file.run = header.text(header.number<uint32_t>());
  auto columns = header.number<uint32_t>();
  uint64_t row_bytes = 0;
  for_each_column(file.log, [&](std::string_view name, const auto& column) {
    const auto size = header.number<uint8_t>();
    const std::string found = header.text(header.number<uint8_t>());
    if (columns-- == 0 || found != name || size != sizeof column[0])
      fail(ErrorKind::kModel, "{}: column {} of {} bytes; expected {} of {}: write it again", where, printable(found),
           size, name, sizeof column[0]);
    row_bytes += size;
  });
  if (columns != 0) fail(ErrorKind::kModel, "{}: {} columns more than expected; write it again", where, columns);

  uint64_t expected = header_bytes;
  const bool fits = rows <= input.bytes() / row_bytes;
  if (fits)
    for_each_column(file.log, [&](const char*, const auto& column) { expected += padded(rows * sizeof column[0]); });
  if (!fits || expected != input.bytes())
    fail(ErrorKind::kModel, "{}: {} rows in a file of {} bytes; is it cut short?", where, rows, input.bytes());
  uint64_t at = header_bytes;
  for_each_column(file.log, [&](const char*, auto& column) {
    column.resize(rows);
    input.read(at, std::as_writable_bytes(std::span(column)));
    at += padded(rows * sizeof column[0]);
  });
  if (op_log_hash(file.log) != hash)
    fail(ErrorKind::kModel, "{}: its rows do not have the hash that it states; the file is damaged: write it again",
         where);
  for (size_t i = 0; i < rows; ++i)
    if (file.log.kind[i] >= OpKind::kCount || file.log.cause[i] >= Cause::kCount || file.log.end[i] < file.log.start[i])
      fail(ErrorKind::kModel, "{}: row {} is none that an op_log has; write it again", where, i);
  return file;
}

bool is_op_log(const std::filesystem::path& path) {
  const InputFile input = InputFile::open(path);
  std::array<std::byte, kMagic.size()> bytes{};
  if (input.bytes() < bytes.size()) return false;
  input.read(0, bytes);
  return std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

std::string_view name_of(OpKind kind) {
  constexpr std::array<std::string_view, static_cast<size_t>(OpKind::kCount)> kNames = {
      "load",       "store",     "fetch", "composite",    "subtile",
      "softmax_pv", "max",       "sum",   "exp",          "maximum",
      "add",        "sub",       "mul",   "div",          "fill",
      "broadcast",  "transpose", "mask",  "softmax step", "accumulator step",
      "send",       "recv"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view name_of(Cause cause) {
  constexpr std::array<std::string_view, static_cast<size_t>(Cause::kCount)> kNames = {"none", "issue", "engine",
                                                                                       "data", "buffer"};
  return kNames[static_cast<size_t>(cause)];
}

std::string_view engine_of(OpKind kind) {
  switch (kind) {
    case OpKind::kLoad:
    case OpKind::kStore:
    case OpKind::kFetch:
      return "DMA";
    case OpKind::kSubtile:
      return "GEMM";
    case OpKind::kComposite:
    case OpKind::kSoftmaxPv:
      return "SCHEDULER";
    case OpKind::kSend:
      return "SEND";
    case OpKind::kRecv:
      return "RECV";
    default:
      return "MATH";
  }
}

}  // namespace coprime::sim
