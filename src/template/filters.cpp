#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "template/builtins.h"
#include "template/syntax.h"
#include "tokenizer/utf8.h"

namespace coprime::templates {
namespace {

using Filter = Value (*)(const Value& input, const Arguments& arguments, Budget* budget);

// "function.name", "0": a part of each element, as map, selectattr and join take it.
Value part_of(const Value& value, const Value& path, Budget* budget) {
  if (path.is_integer()) return item(value, path, "", budget);
  const std::string name = need_text(path, "attribute").bytes();
  Value result = value;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    int64_t index = 0;
    const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool number = error == std::errc() && stop == part.data() + part.size() && !part.empty();
    result = item(result, number ? Value::integer(index) : Value::own_text(part), part, budget);
    begin = end + 1;
  }
  return result;
}

const Value& first_of(const Arguments& arguments, std::string_view filter) {
  if (arguments.positional.empty()) fault("{} needs an argument", filter);
  return arguments.positional[0];
}

Arguments without_first(const Arguments& arguments, size_t count) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<ptrdiff_t>(std::min(count, rest.positional.size())));
  return rest;
}

// select, reject, selectattr, rejectattr.
Value choose(const Value& input, const Arguments& arguments, bool wanted, bool by_part, Budget* budget) {
  const size_t used = by_part ? 1 : 0;
  const Arguments rest = without_first(arguments, used + 1);
  const Value* test = arguments.positional.size() > used ? &arguments.positional[used] : nullptr;
  if (test != nullptr && !is_test(need_text(*test, "select").view()))
    fault("the test {} is not supported", test->as_text().bytes());
  Items result;
  for (const Value& each : iterate(input, budget)) {
    const Value value = by_part ? part_of(each, first_of(arguments, "selectattr"), budget) : each;
    const bool passes = test == nullptr ? value.truthy() : apply_test(test->as_text().view(), value, rest, budget);
    if (passes == wanted) result.push_back(each);
  }
  return Value::list(std::move(result));
}

Value map(const Value& input, const Arguments& arguments, Budget* budget) {
  Items result;
  const bool by_part = arguments.positional.empty();
  const std::vector<const Value*> bound =
      by_part ? arguments.bind("map", {"attribute", "default"}) : std::vector<const Value*>();
  if (by_part && bound[0] == nullptr) fault("map needs a filter or attribute=");
  const std::string filter = by_part ? "" : need_text(arguments.positional[0], "map").bytes();
  if (!by_part && (!is_filter(filter) || filter == "map")) fault("map by the filter {} is not supported", filter);
  const Arguments rest = by_part ? Arguments{} : without_first(arguments, 1);
  for (const Value& each : iterate(input, budget)) {
    Value value = by_part ? part_of(each, *bound[0], budget) : apply_filter(filter, each, rest, budget);
    if (by_part && value.is_undefined() && bound[1] != nullptr) value = *bound[1];
    result.push_back(std::move(value));
  }
  return Value::list(std::move(result));
}

Value join(const Value& input, const Arguments& arguments, Budget* budget) {
  const auto bound = arguments.bind("join", {"d", "attribute"});
  const Text separator = bound[0] == nullptr ? Text() : to_text(*bound[0], budget);
  Text result;
  bool first = true;
  for (const Value& each : iterate(input, budget)) {
    if (!std::exchange(first, false)) result.append(separator);
    budget->bytes(separator.size());
    write(bound[1] == nullptr ? each : part_of(each, *bound[1], budget), false, &result, budget);
  }
  return Value::text(std::move(result));
}

Value length(const Value& input, const Arguments& arguments, Budget* budget) {
  (void)arguments.bind("length", {});
  if (input.is_sequence()) return Value::integer(static_cast<int64_t>(input.items().size()));
  if (input.is_dict()) return Value::integer(static_cast<int64_t>(input.as_dict().entries.size()));
  if (input.is_undefined()) return Value::integer(0);
  const std::string& text = need_text(input, "length").bytes();
  budget->bytes(text.size());
  return Value::integer(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

Value tojson(const Value& input, const Arguments& arguments, Budget* budget) {
  const auto bound = arguments.bind("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  if (bound[0] != nullptr && bound[0]->truthy()) fault("tojson with ensure_ascii is not supported");
  JsonForm form;
  if (bound[1] != nullptr && !bound[1]->is_none()) {
    form.indent = static_cast<int>(std::clamp<int64_t>(need_integer(*bound[1], "tojson"), 0, 64));
    form.item_separator = ",";
  }
  if (bound[2] != nullptr && !bound[2]->is_none()) {
    if (!bound[2]->is_sequence() || bound[2]->items().size() != 2) fault("tojson's separators are two texts");
    form.item_separator = need_text(bound[2]->items()[0], "tojson").bytes();
    form.key_separator = need_text(bound[2]->items()[1], "tojson").bytes();
  }
  form.sort_keys = bound[3] != nullptr && bound[3]->truthy();
  return Value::text(to_json(input, form, budget));
}

Value otherwise(const Value& input, const Arguments& arguments, Budget*) {
  const auto bound = arguments.bind("default", {"default_value", "boolean"});
  const bool also_false = bound[1] != nullptr && bound[1]->truthy();
  if (!input.is_undefined() && (!also_false || input.truthy())) return input;
  return bound[0] == nullptr ? Value::own_text("") : *bound[0];
}

Value items(const Value& input, const Arguments& arguments, Budget* budget) {
  (void)arguments.bind("items", {});
  if (input.is_undefined()) return Value::list({});
  if (!input.is_dict()) fault("items needs a dict, not {}", input.type_name());
  return call_method(input, "items", {}, budget);
}

Value first(const Value& input, const Arguments& arguments, Budget* budget) {
  (void)arguments.bind("first", {});
  const Items all = iterate(input, budget);
  return all.empty() ? Value(Undefined{"the first of nothing"}) : all.front();
}

Value last(const Value& input, const Arguments& arguments, Budget* budget) {
  (void)arguments.bind("last", {});
  const Items all = iterate(input, budget);
  return all.empty() ? Value(Undefined{"the last of nothing"}) : all.back();
}

Value reverse(const Value& input, const Arguments& arguments, Budget* budget) {
  (void)arguments.bind("reverse", {});
  if (input.is_text()) return slice(input, Value::none(), Value::none(), Value::integer(-1), budget);
  Items all = iterate(input, budget);
  std::ranges::reverse(all);
  return Value::list(std::move(all));
}

template <class T>
bool read_number(const Text& text, T* value) {
  const Text plain = strip(text, Side::kBoth, nullptr);
  const char* begin = plain.bytes().data();
  const char* end = begin + plain.size();
  if (begin != end && *begin == '+') ++begin;
  const auto [stop, error] = std::from_chars(begin, end, *value);
  return error == std::errc() && stop == end && begin != end;
}

Value to_integer(const Value& input, const Arguments& arguments, Budget*) {
  const auto bound = arguments.bind("int", {"default"});
  const Value absent = bound[0] == nullptr ? Value::integer(0) : *bound[0];
  double real = 0;
  int64_t integer = 0;
  if (input.is_boolean() || input.is_integer()) return Value::integer(input.as_integer(), input.is_foreign());
  if (input.is_real()) {
    real = input.as_real();
  } else if (!input.is_text()) {
    return absent;
  } else if (read_number(input.as_text(), &integer)) {
    return Value::integer(integer, input.as_text().has_foreign());
  } else if (!read_number(input.as_text(), &real)) {
    return absent;
  }
  if (!(std::fabs(real) < 9e18)) return absent;
  return Value::integer(static_cast<int64_t>(real), input.is_foreign() || input.is_text());
}

Value to_real(const Value& input, const Arguments& arguments, Budget*) {
  const auto bound = arguments.bind("float", {"default"});
  double real = 0;
  if (input.is_number()) return Value::real(input.as_real(), input.is_foreign());
  if (input.is_text() && read_number(input.as_text(), &real)) return Value::real(real, input.as_text().has_foreign());
  return bound[0] == nullptr ? Value::real(0) : *bound[0];
}

Value absolute(const Value& input, const Arguments& arguments, Budget*) {
  (void)arguments.bind("abs", {});
  if (input.is_real()) return Value::real(std::fabs(input.as_real()), input.is_foreign());
  const int64_t value = need_integer(input, "abs");
  if (value == INT64_MIN) fault("abs: the number is out of range");
  return Value::integer(std::abs(value), input.is_foreign());
}

Value indent(const Value& input, const Arguments& arguments, Budget* budget) {
  const auto bound = arguments.bind("indent", {"width", "first", "blank"});
  const bool first_too = bound[1] != nullptr && bound[1]->truthy(),
             blank_too = bound[2] != nullptr && bound[2]->truthy();
  Text margin = Text::own("    ");
  if (bound[0] != nullptr && bound[0]->is_text()) margin = bound[0]->as_text();
  if (bound[0] != nullptr && !bound[0]->is_text())
    margin = Text::own(
        std::string(static_cast<size_t>(std::clamp<int64_t>(need_integer(*bound[0], "indent"), 0, 256)), ' '));
  const Text text = to_text(input, budget);
  Text result;
  for (size_t begin = 0;;) {
    const size_t end = std::min(text.view().find('\n', begin), text.size());
    if ((begin > 0 || first_too) && (blank_too || end > begin || begin == 0)) {
      budget->bytes(margin.size());
      result.append(margin);
    }
    result.append(text, begin, std::min(end + 1, text.size()));
    if (end == text.size()) return Value::text(std::move(result));
    begin = end + 1;
  }
}

template <class F>
Value on_text(const Value& input, Budget* budget, F change) {
  return Value::text(change(to_text(input, budget)));
}

struct Row {
  std::string_view name;
  Filter filter;
};
constexpr auto kFilters = std::to_array<Row>({
    {"abs", absolute},
    {"capitalize",
     [](const Value& v, const Arguments&, Budget* b) { return on_text(v, b, [b](const Text& t) { return with_case(t, "capitalize", b); }); }},
    {"count", length},
    {"d", otherwise},
    {"default", otherwise},
    {"first", first},
    {"float", to_real},
    {"indent", indent},
    {"int", to_integer},
    {"items", items},
    {"join", join},
    {"last", last},
    {"length", length},
    {"list", [](const Value& v, const Arguments&, Budget* b) { return Value::list(iterate(v, b)); }},
    {"lower",
     [](const Value& v, const Arguments&, Budget* b) { return on_text(v, b, [b](const Text& t) { return with_case(t, "lower", b); }); }},
    {"map", map},
    {"reject", [](const Value& v, const Arguments& a, Budget* b) { return choose(v, a, false, false, b); }},
    {"rejectattr", [](const Value& v, const Arguments& a, Budget* b) { return choose(v, a, false, true, b); }},
    {"replace",
     [](const Value& v, const Arguments& a, Budget* b) {
       const auto bound = a.bind("replace", {"old", "new", "count"});
       if (bound[0] == nullptr || bound[1] == nullptr) fault("replace needs two arguments");
       const int64_t count = bound[2] == nullptr || bound[2]->is_none() ? -1 : need_integer(*bound[2], "replace");
       return Value::text(replace(to_text(v, b), to_text(*bound[0], b), to_text(*bound[1], b), count, b));
     }},
    {"reverse", reverse},
    {"safe", [](const Value& v, const Arguments&, Budget* b) { return Value::text(to_text(v, b)); }},
    {"select", [](const Value& v, const Arguments& a, Budget* b) { return choose(v, a, true, false, b); }},
    {"selectattr", [](const Value& v, const Arguments& a, Budget* b) { return choose(v, a, true, true, b); }},
    {"string", [](const Value& v, const Arguments&, Budget* b) { return Value::text(to_text(v, b)); }},
    {"title",
     [](const Value& v, const Arguments&, Budget* b) { return on_text(v, b, [b](const Text& t) { return with_case(t, "title", b); }); }},
    {"tojson", tojson},
    {"trim",
     [](const Value& v, const Arguments& a, Budget* b) {
       const auto bound = a.bind("trim", {"chars"});
       return on_text(v, b, [&](const Text& t) { return strip(t, Side::kBoth, bound[0]); });
     }},
    {"upper",
     [](const Value& v, const Arguments&, Budget* b) { return on_text(v, b, [b](const Text& t) { return with_case(t, "upper", b); }); }},
});

const Row* find_filter(std::string_view name) {
  const auto found = std::ranges::lower_bound(kFilters, name, {}, &Row::name);
  return found != kFilters.end() && found->name == name ? &*found : nullptr;
}
static_assert(std::ranges::is_sorted(kFilters, {}, &Row::name));

}  // namespace

bool is_filter(std::string_view name) { return find_filter(name) != nullptr; }

Value apply_filter(std::string_view name, const Value& input, const Arguments& arguments, Budget* budget) {
  return find_filter(name)->filter(input, arguments, budget);
}

}  // namespace coprime::templates
