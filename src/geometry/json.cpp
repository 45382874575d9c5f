#include "geometry/json.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <unordered_set>

#include "base/error.h"
#include "base/unique_fd.h"

namespace coprime {
namespace {

using simdjson::dom::element;

constexpr size_t kMaxDepth = 32;

// Depth is bounded by the parser.
void refuse_duplicates(element value, const std::string& where) {
  simdjson::dom::array array;
  simdjson::dom::object object;
  if (value.get(array) == simdjson::SUCCESS) {
    for (element item : array) refuse_duplicates(item, where);
  } else if (value.get(object) == simdjson::SUCCESS) {
    std::unordered_set<std::string_view> seen;
    for (const auto& field : object) {
      if (!seen.insert(field.key).second) {
        fail(ErrorKind::kModel, "{}: key \"{}\" stands twice in one object; the file is damaged or forged", where,
             printable(field.key));
      }
      refuse_duplicates(field.value, where);
    }
  }
}

}  // namespace

std::string describe(element value) {
  std::string text = simdjson::minify(value);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

std::optional<element> JsonObject::find(std::string_view key) const {
  element value;
  if (object_.at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return value;
}

void JsonObject::wrong(std::string_view key, element found, const std::string& expected) const {
  fail(ErrorKind::kModel, "{} is {}; expected {}", path(key), describe(found), expected);
}

std::optional<JsonObject> JsonObject::object(std::string_view key) const {
  const auto value = find(key);
  if (!value) return std::nullopt;
  simdjson::dom::object object;
  if (value->get(object) != simdjson::SUCCESS) wrong(key, *value, "an object");
  return JsonObject(object, path(key) + ".");
}

std::optional<simdjson::dom::array> JsonObject::array(std::string_view key) const {
  const auto value = find(key);
  if (!value) return std::nullopt;
  simdjson::dom::array array;
  if (value->get(array) != simdjson::SUCCESS) wrong(key, *value, "a list");
  return array;
}

std::optional<std::string> JsonObject::string(std::string_view key) const {
  const auto value = find(key);
  if (!value) return std::nullopt;
  std::string_view text;
  if (value->get(text) != simdjson::SUCCESS) wrong(key, *value, "a string");
  return std::string(text);
}

std::optional<bool> JsonObject::boolean(std::string_view key) const {
  const auto value = find(key);
  if (!value) return std::nullopt;
  bool truth = false;
  if (value->get(truth) != simdjson::SUCCESS) wrong(key, *value, "true or false");
  return truth;
}

std::optional<double> JsonObject::number(std::string_view key) const {
  const auto value = find(key);
  if (!value) return std::nullopt;
  double number = 0;
  if (value->get(number) != simdjson::SUCCESS || !std::isfinite(number)) wrong(key, *value, "a number");
  return number;
}

std::optional<int64_t> JsonObject::integer(std::string_view key, int64_t min, int64_t max) const {
  const auto value = find(key);
  if (!value) return std::nullopt;
  int64_t number = 0;
  if (!(value->is_int64() || value->is_uint64()) || value->get(number) != simdjson::SUCCESS || number < min ||
      number > max) {
    wrong(key, *value, fmt::format("an integer in {}..{}", min, max));
  }
  return number;
}

int64_t JsonObject::required_integer(std::string_view key, int64_t min, int64_t max) const {
  const auto value = integer(key, min, max);
  if (!value) fail(ErrorKind::kModel, "{} is missing; expected an integer in {}..{}", path(key), min, max);
  return *value;
}

JsonDocument::JsonDocument(std::string_view text, const std::string& where) : where_(where) {
  if (parser_.allocate(std::max<size_t>(text.size(), 64), kMaxDepth) != simdjson::SUCCESS) {
    fail(ErrorKind::kInternal, "{}: no memory to parse {} bytes of JSON", where, text.size());
  }
  element top;
  const simdjson::error_code error = parser_.parse(text.data(), text.size()).get(top);
  if (error != simdjson::SUCCESS) {
    fail(ErrorKind::kModel, "{}: {} bytes that are not JSON ({}); is the file cut short?", where, text.size(),
         simdjson::error_message(error));
  }
  if (top.get(root_) != simdjson::SUCCESS) {
    fail(ErrorKind::kModel, "{}: the JSON is {}; expected an object", where, describe(top));
  }
  refuse_duplicates(top, where);
}

std::string read_text_file(const std::filesystem::path& path, int64_t max_bytes) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0) fail(ErrorKind::kModel, "{}: {}", path.string(), errno_text(errno));
  if (!S_ISREG(status.st_mode)) fail(ErrorKind::kModel, "{}: not a regular file", path.string());
  if (status.st_size > max_bytes) {
    fail(ErrorKind::kModel, "{}: {} bytes; at most {} are read", path.string(), status.st_size, max_bytes);
  }
  std::string text(static_cast<size_t>(status.st_size), '\0');
  size_t have = 0;
  while (have < text.size()) {
    const ssize_t got = ::read(fd.get(), text.data() + have, text.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(ErrorKind::kModel, "{}: {}", path.string(), errno_text(errno));
    if (got == 0) {
      fail(ErrorKind::kModel, "{}: file shrank: expected {} bytes, found {}", path.string(), text.size(), have);
    }
    have += static_cast<size_t>(got);
  }
  return text;
}

}  // namespace coprime
