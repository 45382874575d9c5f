// Jinja's tests: value is NAME.
#include <algorithm>
#include <array>

#include "template/builtins.h"
#include "template/syntax.h"

namespace coprime::templates {
namespace {

using Check = bool (*)(const Value& value, const Value* other, Budget* budget);

bool is_one_of_two(const Value& value, int64_t remainder, std::string_view test) {
  return (need_integer(value, test) % 2 + 2) % 2 == remainder;
}

struct Row {
  std::string_view name;
  bool needs_other;
  Check check;
};
constexpr auto kChecks = std::to_array<Row>({
    {"!=", true, [](const Value& v, const Value* o, Budget* b) { return !equal(v, *o, b); }},
    {"<", true, [](const Value& v, const Value* o, Budget* b) { return less(v, *o, b); }},
    {"<=", true, [](const Value& v, const Value* o, Budget* b) { return !less(*o, v, b); }},
    {"==", true, [](const Value& v, const Value* o, Budget* b) { return equal(v, *o, b); }},
    {">", true, [](const Value& v, const Value* o, Budget* b) { return less(*o, v, b); }},
    {">=", true, [](const Value& v, const Value* o, Budget* b) { return !less(v, *o, b); }},
    {"boolean", false, [](const Value& v, const Value*, Budget*) { return v.is_boolean(); }},
    {"callable", false, [](const Value& v, const Value*, Budget*) { return v.is_function(); }},
    {"defined", false, [](const Value& v, const Value*, Budget*) { return !v.is_undefined(); }},
    {"divisibleby", true,
     [](const Value& v, const Value* o, Budget*) {
       const int64_t by = need_integer(*o, "divisibleby");
       if (by == 0) fault("divisibleby 0");
       return by == -1 || need_integer(v, "divisibleby") % by == 0;
     }},
    {"eq", true, [](const Value& v, const Value* o, Budget* b) { return equal(v, *o, b); }},
    {"equalto", true, [](const Value& v, const Value* o, Budget* b) { return equal(v, *o, b); }},
    {"even", false, [](const Value& v, const Value*, Budget*) { return is_one_of_two(v, 0, "even"); }},
    {"false", false, [](const Value& v, const Value*, Budget*) { return v.is_boolean() && !v.as_boolean(); }},
    {"float", false, [](const Value& v, const Value*, Budget*) { return v.is_real(); }},
    {"ge", true, [](const Value& v, const Value* o, Budget* b) { return !less(v, *o, b); }},
    {"gt", true, [](const Value& v, const Value* o, Budget* b) { return less(*o, v, b); }},
    {"in", true, [](const Value& v, const Value* o, Budget* b) { return contains(*o, v, b); }},
    {"integer", false, [](const Value& v, const Value*, Budget*) { return v.is_integer(); }},
    {"iterable", false,
     [](const Value& v, const Value*,
        Budget*) { return v.is_sequence() || v.is_dict() || v.is_text() || v.is_undefined(); }},
    {"le", true, [](const Value& v, const Value* o, Budget* b) { return !less(*o, v, b); }},
    {"lt", true, [](const Value& v, const Value* o, Budget* b) { return less(v, *o, b); }},
    {"mapping", false, [](const Value& v, const Value*, Budget*) { return v.is_dict(); }},
    {"ne", true, [](const Value& v, const Value* o, Budget* b) { return !equal(v, *o, b); }},
    {"none", false, [](const Value& v, const Value*, Budget*) { return v.is_none(); }},
    {"number", false, [](const Value& v, const Value*, Budget*) { return v.is_number(); }},
    {"odd", false, [](const Value& v, const Value*, Budget*) { return is_one_of_two(v, 1, "odd"); }},
    {"sequence", false,
     [](const Value& v, const Value*,
        Budget*) { return v.is_sequence() || v.is_dict() || v.is_text() || v.is_undefined(); }},
    {"string", false, [](const Value& v, const Value*, Budget*) { return v.is_text(); }},
    {"true", false, [](const Value& v, const Value*, Budget*) { return v.is_boolean() && v.as_boolean(); }},
    {"undefined", false, [](const Value& v, const Value*, Budget*) { return v.is_undefined(); }},
});
static_assert(std::ranges::is_sorted(kChecks, {}, &Row::name));

const Row* find_check(std::string_view name) {
  const auto found = std::ranges::lower_bound(kChecks, name, {}, &Row::name);
  return found != kChecks.end() && found->name == name ? &*found : nullptr;
}

}  // namespace

bool is_test(std::string_view name) { return find_check(name) != nullptr; }

bool apply_test(std::string_view name, const Value& input, const Arguments& arguments, Budget* budget) {
  const Row& row = *find_check(name);
  const size_t expected = row.needs_other ? 1 : 0;
  if (arguments.positional.size() != expected || !arguments.named.empty())
    fault("the test {} takes {} arguments", name, expected);
  return row.check(input, expected == 0 ? nullptr : arguments.positional.data(), budget);
}

}  // namespace coprime::templates
