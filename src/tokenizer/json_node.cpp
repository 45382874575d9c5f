#include "tokenizer/json_node.h"

#include "base/error.h"
#include "tokenizer/tokenizer_spec.h"

namespace coprime {
namespace {

// A short text of a value for messages.
std::string brief(simdjson::dom::element value) {
  std::string_view text;
  if (value.get(text) == simdjson::SUCCESS) return quoted(text);
  switch (value.type()) {
    case simdjson::dom::element_type::ARRAY:
      return "an array";
    case simdjson::dom::element_type::OBJECT:
      return "an object";
    case simdjson::dom::element_type::NULL_VALUE:
      return "null";
    default:
      return simdjson::minify(value);
  }
}

}  // namespace

std::string quoted(std::string_view text) {
  if (text.size() > 60) return fmt::format("{:?}... ({} bytes)", text.substr(0, 40), text.size());
  return fmt::format("{:?}", text);
}

void JsonNode::refuse(std::string_view expected) const {
  fail(ErrorKind::kModel, "{}: found {}, expected {}", path_, brief(value_), expected);
}

simdjson::dom::object JsonNode::object() const {
  simdjson::dom::object result;
  if (value_.get(result) != simdjson::SUCCESS) refuse("an object");
  return result;
}

simdjson::dom::array JsonNode::array() const {
  simdjson::dom::array result;
  if (value_.get(result) != simdjson::SUCCESS) refuse("an array");
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

int32_t JsonNode::token_id() const {
  int64_t id = -1;
  if (value_.get(id) != simdjson::SUCCESS || id < 0 || id >= TokenizerSpec::kMaxTokens) {
    refuse(fmt::format("a token id from 0 to {}", TokenizerSpec::kMaxTokens - 1));
  }
  return static_cast<int32_t>(id);
}

std::optional<JsonNode> JsonNode::get(std::string_view key) const {
  std::optional<JsonNode> found;
  for (const auto& [name, value] : object()) {
    if (name != key) continue;
    if (found) fail(ErrorKind::kModel, "{}: the key \"{}\" stands there twice", path_, key);
    found.emplace(value, fmt::format("{}.{}", path_, key));
  }
  if (found && found->value_.is_null()) found.reset();
  return found;
}

JsonNode JsonNode::need(std::string_view key) const {
  std::optional<JsonNode> found = get(key);
  if (!found) fail(ErrorKind::kModel, "{}: the key \"{}\" is missing", path_, key);
  return *found;
}

std::vector<JsonNode> JsonNode::items() const {
  std::vector<JsonNode> result;
  for (const auto& value : array()) result.emplace_back(value, fmt::format("{}[{}]", path_, result.size()));
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

JsonNode parse_json(simdjson::dom::parser* parser, std::string_view json, const std::string& where) {
  simdjson::dom::element root;
  const simdjson::error_code error = parser->parse(json.data(), json.size()).get(root);
  if (error == simdjson::MEMALLOC || error == simdjson::CAPACITY) {
    fail(ErrorKind::kModel, "{}: {} bytes are too many to read", where, json.size());
  }
  if (error != simdjson::SUCCESS) {
    fail(ErrorKind::kModel, "{}: this is no whole JSON document: {}", where, simdjson::error_message(error));
  }
  return {root, where};
}

}  // namespace coprime
