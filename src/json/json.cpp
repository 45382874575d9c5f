#include "json/json.h"

#include <cmath>
#include <unordered_set>

#include "base/error.h"
#include "base/input_file.h"

namespace coprime {
namespace {

using simdjson::dom::element;

// What is to be done about a file; a request's writer knows.
std::string_view remedy(ErrorKind kind, std::string_view text) { return kind == ErrorKind::kUsage ? "" : text; }

// Depth is bounded by the parser.
void refuse_duplicates(element value, const std::string& where, ErrorKind kind) {
  simdjson::dom::array array;
  simdjson::dom::object object;
  if (value.get(array) == simdjson::SUCCESS) {
    for (element item : array) refuse_duplicates(item, where, kind);
  } else if (value.get(object) == simdjson::SUCCESS) {
    std::unordered_set<std::string_view> seen(object.size());
    for (const auto& field : object) {
      if (!seen.insert(field.key).second)
        fail(kind, "{}: key {} stands twice in one object{}", where, quoted(field.key),
             remedy(kind, "; the file is damaged or forged: fetch it again"));
      refuse_duplicates(field.value, where, kind);
    }
  }
}

}  // namespace

std::string describe(element value) {
  std::string text = simdjson::minify(value);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

std::string quoted(std::string_view text) {
  if (text.size() > 60) return fmt::format("{:?}... ({} bytes)", text.substr(0, 40), text.size());
  return fmt::format("{:?}", text);
}

std::string JsonNode::path_of(std::string_view key) const {
  return fmt::format("{}{}{}", path_, path_.find(": ") == path_.npos ? ": " : ".", key);
}

void JsonNode::refuse(std::string_view expected) const {
  fail(ErrorKind::kModel, "{} is {}; expected {}", path_, describe(value_), expected);
}

std::optional<JsonNode> JsonNode::get(std::string_view key) const {
  element found;
  if (object().at_key(key).get(found) != simdjson::SUCCESS || found.is_null()) return std::nullopt;
  return JsonNode(found, path_of(key));
}

JsonNode JsonNode::need(std::string_view key) const {
  std::optional<JsonNode> found = get(key);
  if (!found) fail(ErrorKind::kModel, "{} is missing", path_of(key));
  return *found;
}

std::vector<JsonNode> JsonNode::items() const {
  std::vector<JsonNode> result;
  for (element value : array()) result.emplace_back(value, fmt::format("{}[{}]", path_, result.size()));
  return result;
}

simdjson::dom::object JsonNode::object() const {
  simdjson::dom::object result;
  if (value_.get(result) != simdjson::SUCCESS) refuse("an object");
  return result;
}

simdjson::dom::array JsonNode::array() const {
  simdjson::dom::array result;
  if (value_.get(result) != simdjson::SUCCESS) refuse("a list");
  return result;
}

std::string_view JsonNode::text() const {
  std::string_view result;
  if (value_.get(result) != simdjson::SUCCESS) refuse("a string");
  return result;
}

bool JsonNode::flag() const {
  bool result = false;
  if (value_.get(result) != simdjson::SUCCESS) refuse("true or false");
  return result;
}

double JsonNode::number() const {
  double result = 0;
  if (value_.get(result) != simdjson::SUCCESS || !std::isfinite(result)) refuse("a number");
  return result;
}

int64_t JsonNode::integer(int64_t min, int64_t max) const {
  int64_t result = 0;
  if (!(value_.is_int64() || value_.is_uint64()) || value_.get(result) != simdjson::SUCCESS || result < min ||
      result > max) {
    refuse(fmt::format("an integer in {}..{}", min, max));
  }
  return result;
}

bool JsonNode::flag_or(std::string_view key, bool absent) const {
  const std::optional<JsonNode> found = get(key);
  return found ? found->flag() : absent;
}

std::string_view JsonNode::text_or(std::string_view key, std::string_view absent) const {
  const std::optional<JsonNode> found = get(key);
  return found ? found->text() : absent;
}

std::optional<element> JsonObject::find(std::string_view key) const {
  element value;
  if (object_.at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return value;
}

std::optional<JsonNode> JsonObject::node(std::string_view key) const {
  const auto value = find(key);
  return value ? std::optional(JsonNode(*value, path(key))) : std::nullopt;
}

std::optional<JsonObject> JsonObject::object(std::string_view key) const {
  const auto found = node(key);
  return found ? std::optional(JsonObject(found->object(), path(key) + ".")) : std::nullopt;
}

std::optional<simdjson::dom::array> JsonObject::array(std::string_view key) const {
  const auto found = node(key);
  return found ? std::optional(found->array()) : std::nullopt;
}

std::optional<std::string> JsonObject::string(std::string_view key) const {
  const auto found = node(key);
  return found ? std::optional(std::string(found->text())) : std::nullopt;
}

std::optional<bool> JsonObject::boolean(std::string_view key) const {
  const auto found = node(key);
  return found ? std::optional(found->flag()) : std::nullopt;
}

std::optional<double> JsonObject::number(std::string_view key) const {
  const auto found = node(key);
  return found ? std::optional(found->number()) : std::nullopt;
}

std::optional<int64_t> JsonObject::integer(std::string_view key, int64_t min, int64_t max) const {
  const auto found = node(key);
  return found ? std::optional(found->integer(min, max)) : std::nullopt;
}

int64_t JsonObject::required_integer(std::string_view key, int64_t min, int64_t max) const {
  const auto value = integer(key, min, max);
  if (!value) fail(ErrorKind::kModel, "{} is missing; expected an integer in {}..{}", path(key), min, max);
  return *value;
}

JsonDocument::JsonDocument(std::string_view text, const std::string& where, size_t depth)
    : JsonDocument(text, where, depth, ErrorKind::kModel) {
  if (top_.get(root_) != simdjson::SUCCESS)
    fail(ErrorKind::kModel, "{}: the JSON is {}; expected an object", where, describe(top_));
}

JsonDocument JsonDocument::of_request(std::string_view text, const std::string& where) {
  return {text, where, kRequestDepth, ErrorKind::kUsage};
}

JsonDocument::JsonDocument(std::string_view text, const std::string& where, size_t depth, ErrorKind kind)
    : where_(where) {
  if (parser_.allocate(std::max<size_t>(text.size(), 64), depth) != simdjson::SUCCESS)
    fail(kind, "{}: {} bytes of JSON are more than can be read", where, text.size());
  const simdjson::error_code error = parser_.parse(text.data(), text.size()).get(top_);
  if (error == simdjson::DEPTH_ERROR) {
    fail(kind, "{}: {} bytes that are not JSON of at most {} levels, one in another", where, text.size(), depth);
  }
  if (error != simdjson::SUCCESS) {
    fail(kind, "{}: {} bytes that are not JSON ({}){}", where, text.size(), simdjson::error_message(error),
         remedy(kind, "; is the file cut short? fetch it again"));
  }
  refuse_duplicates(top_, where, kind);
  if (top_.is_object()) root_ = top_.get_object().value_unsafe();
}

std::string read_text_file(const std::filesystem::path& path, int64_t max_bytes) {
  const InputFile file = InputFile::open(path);
  if (file.bytes() > static_cast<uint64_t>(max_bytes)) {
    fail(ErrorKind::kModel, "{}: {} bytes; at most {} are read; is it what its name says?", path.string(), file.bytes(),
         max_bytes);
  }
  std::string text(file.bytes(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace coprime
