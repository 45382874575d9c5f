// A value in a JSON document with its path, for messages. A key that is asked for must stand there once at most; null
// counts as absent. Errors are Error(kModel): file, path, what was found, what was expected.
#pragma once

#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coprime {

class JsonNode {
 public:
  JsonNode(simdjson::dom::element value, std::string path) : value_(value), path_(std::move(path)) {}

  simdjson::dom::element value() const { return value_; }
  const std::string& path() const { return path_; }

  std::optional<JsonNode> get(std::string_view key) const;  // of an object
  JsonNode need(std::string_view key) const;
  std::vector<JsonNode> items() const;  // of an array

  simdjson::dom::object object() const;
  simdjson::dom::array array() const;
  std::string_view text() const;
  bool flag() const;
  int32_t token_id() const;  // in [0, TokenizerSpec::kMaxTokens)

  // The key's value where it is there, else `absent`.
  bool flag_or(std::string_view key, bool absent) const;
  std::string_view text_or(std::string_view key, std::string_view absent) const;

  [[noreturn]] void refuse(std::string_view expected) const;  // found: this value

 private:
  simdjson::dom::element value_;
  std::string path_;
};

// For messages: one line, and not a long one.
std::string quoted(std::string_view text);

// Parses a whole document; the node lives as long as the parser and its next parse.
JsonNode parse_json(simdjson::dom::parser* parser, std::string_view json, const std::string& where);

}  // namespace coprime
