// JSON as coprime trusts it: one object at the top, bounded depth and size, no key twice in any object, and reads by
// key that check type and range. Errors name the file, the key's path, what was found and what is expected. null counts
// as absent.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/printable.h"

namespace coprime {

// A view into a JsonDocument, which must outlive it.
class JsonObject {
 public:
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
  [[noreturn]] void wrong(std::string_view key, simdjson::dom::element found, const std::string& expected) const;

  simdjson::dom::object object_;
  std::string where_;
};

class JsonDocument {
 public:
  // Error(kModel) for anything but one well-formed object. `where` names the text in errors.
  JsonDocument(std::string_view text, const std::string& where);

  JsonObject root() const { return JsonObject(root_, where_ + ": "); }

 private:
  std::string where_;
  simdjson::dom::parser parser_;  // holds the document
  simdjson::dom::object root_;
};

// One line of at most 60 characters that shows a value.
std::string describe(simdjson::dom::element value);

// The file's text. Error(kModel) if it cannot be read or is larger than `max_bytes`.
std::string read_text_file(const std::filesystem::path& path, int64_t max_bytes);

}  // namespace coprime
