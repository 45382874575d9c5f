// Structs as JSON objects, by one list of fields for both directions: a struct has
//   template <class Field, class T> void visit(Field&& field, T& value) requires std::same_as<std::remove_const_t<T>,
//   S>
// in this namespace, which calls field("name", value.member) for each member. Members may be vectors of such structs.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace coprime {
namespace json_fields {

struct Nothing {
  void operator()(const char*, const auto&) const {}
};
template <class T>
concept Described = requires(T& value) {
  visit(Nothing(), value);
};

template <class T>
nlohmann::json to_object(const T& value);
template <class T>
T from_object(const nlohmann::json& object);

struct Writer {
  nlohmann::json& object;
  void operator()(const char* name, const auto& value) const { object[name] = value; }
  template <Described T>
  void operator()(const char* name, const std::vector<T>& list) const {
    nlohmann::json& array = object[name] = nlohmann::json::array();
    for (const T& value : list) array.push_back(to_object(value));
  }
};

struct Reader {
  const nlohmann::json& object;
  void operator()(const char* name, auto& value) const { object.at(name).get_to(value); }
  template <Described T>
  void operator()(const char* name, std::vector<T>& list) const {
    for (const nlohmann::json& value : object.at(name)) list.push_back(from_object<T>(value));
  }
};

template <class T>
nlohmann::json to_object(const T& value) {
  nlohmann::json object;
  visit(Writer{object}, value);
  return object;
}

template <class T>
T from_object(const nlohmann::json& object) {
  T value;
  visit(Reader{object}, value);
  return value;
}

}  // namespace json_fields

// A path need not be UTF-8: what is not is replaced.
template <class T>
std::string fields_to_json(const T& value) {
  return json_fields::to_object(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Error(kInternal) for text that is no such object.
template <class T>
T fields_from_json(std::string_view text) {
  try {
    return json_fields::from_object<T>(nlohmann::json::parse(text));
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorKind::kInternal, "a control message is not as expected: {}", error.what());
  }
}

}  // namespace coprime
