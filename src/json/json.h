// JSON as coprime trusts it, for every file that comes from elsewhere: bounded depth and size, no key twice in any
// object, and reads that check type and range. Errors are Error(kModel) and name the file, the key's path, what was
// found and what is expected. null counts as absent.
//
// A JsonNode is any value with its path; a JsonObject is an object that is read by keys that may be absent. Both are
// views into a JsonDocument, which must outlive them.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/printable.h"

namespace coprime {

class JsonNode {
 public:
  // `path`: "config.json" of a whole document, "config.json: text_config.hidden_size" within it.
  JsonNode(simdjson::dom::element value, std::string path) : value_(value), path_(std::move(path)) {}

  simdjson::dom::element value() const { return value_; }
  const std::string& path() const { return path_; }
  std::string path_of(std::string_view key) const;  // "config.json: key", "config.json: text_config.key"

  std::optional<JsonNode> get(std::string_view key) const;  // of an object
  JsonNode need(std::string_view key) const;
  std::vector<JsonNode> items() const;  // of a list

  simdjson::dom::object object() const;
  simdjson::dom::array array() const;
  std::string_view text() const;
  bool flag() const;
  double number() const;  // finite
  int64_t integer(int64_t min, int64_t max) const;

  // The key's value where it is there, else `absent`.
  bool flag_or(std::string_view key, bool absent) const;
  std::string_view text_or(std::string_view key, std::string_view absent) const;

  [[noreturn]] void refuse(std::string_view expected) const;  // "PATH is VALUE; expected ..."

 private:
  simdjson::dom::element value_;
  std::string path_;
};

class JsonObject {
 public:
  // `where` stands before every key: "config.json: text_config."
  JsonObject(simdjson::dom::object object, std::string where) : object_(object), where_(std::move(where)) {}

  // "config.json: text_config.hidden_size"
  std::string path(std::string_view key) const { return where_ + std::string(key); }
  bool has(std::string_view key) const { return find(key).has_value(); }
  std::optional<simdjson::dom::element> find(std::string_view key) const;

  std::optional<JsonObject> object(std::string_view key) const;
  std::optional<simdjson::dom::array> array(std::string_view key) const;
  std::optional<std::string> string(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;  // finite
  std::optional<int64_t> integer(std::string_view key, int64_t min, int64_t max) const;
  int64_t required_integer(std::string_view key, int64_t min, int64_t max) const;

  simdjson::dom::object raw() const { return object_; }

 private:
  std::optional<JsonNode> node(std::string_view key) const;

  simdjson::dom::object object_;
  std::string where_;
};

class JsonDocument {
 public:
  static constexpr size_t kDepth = 32;  // of configs, headers, indices
  static constexpr size_t kRequestDepth = 128;

  // Error(kModel) for anything but one well-formed object of at most `depth` levels. `where` names the text in errors.
  JsonDocument(std::string_view text, const std::string& where, size_t depth = kDepth);
  // What a person or a client wrote: any value at the top, at most kRequestDepth levels, and the errors are
  // Error(kUsage). root() is for objects alone.
  static JsonDocument of_request(std::string_view text, const std::string& where);

  JsonObject root() const { return JsonObject(root_, where_ + ": "); }
  JsonNode node() const { return JsonNode(top_, where_); }

 private:
  JsonDocument(std::string_view text, const std::string& where, size_t depth, ErrorKind kind);

  std::string where_;
  simdjson::dom::parser parser_;  // holds the document
  simdjson::dom::element top_;
  simdjson::dom::object root_;
};

// One line of at most 60 characters that shows a value.
std::string describe(simdjson::dom::element value);

// A text in quotes for messages: one line, and not a long one.
std::string quoted(std::string_view text);

// The file's text. Error(kModel) if it cannot be read or is larger than `max_bytes`.
std::string read_text_file(const std::filesystem::path& path, int64_t max_bytes);

}  // namespace coprime
