// What Jinja and Python bring along: access to parts, filters, tests and methods. Internal to the folder. All throw a
// Fault that names what is wrong.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "template/value.h"

namespace coprime::templates {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // By parameter; null for one that is not given. A Fault for one too many, or of another name.
  std::vector<const Value*> bind(std::string_view callee, std::initializer_list<std::string_view> parameters) const;
};

// value.name and value[key]: undefined where there is no such part; `what` is the expression, for messages.
Value attribute(const Value& value, std::string_view name, const std::string& what);
Value item(const Value& value, const Value& key, const std::string& what, Budget* budget);
Value slice(const Value& value, const Value& first, const Value& last, const Value& step, Budget* budget);

Value apply_filter(std::string_view name, const Value& input, const Arguments& arguments, Budget* budget);
bool apply_test(std::string_view name, const Value& input, const Arguments& arguments, Budget* budget);
Value call_method(const Value& object, std::string_view name, const Arguments& arguments, Budget* budget);

// Whether Python's type has a method of this name, so that value.name is it and no key of a dict.
bool is_method(const Value& object, std::string_view name);

// Of texts, as Python's methods do it.
enum class Side { kLeft, kRight, kBoth };
Text strip(const Text& text, Side side, const Value* characters);
Text replace(const Text& text, const Text& from, const Text& to, int64_t count, Budget* budget);
Text with_case(const Text& text, std::string_view method, Budget* budget);  // upper, lower, capitalize, title

const Text& need_text(const Value& value, std::string_view callee);
int64_t need_integer(const Value& value, std::string_view callee);

}  // namespace coprime::templates
