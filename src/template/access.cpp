#include <algorithm>

#include "template/builtins.h"
#include "tokenizer/utf8.h"

namespace coprime::templates {
namespace {

std::vector<size_t> code_points(const Text& text, Budget* budget) {  // where each begins, and the end
  budget->bytes(text.size());
  std::vector<size_t> places;
  for (size_t at = 0; at < text.size(); next_code_point(text.view(), &at)) places.push_back(at);
  places.push_back(text.size());
  return places;
}

// Python's slice.indices for one bound.
int64_t bound(const Value& value, int64_t length, int64_t absent, int64_t least, int64_t most) {
  if (value.is_none()) return absent;
  if (!value.is_integer() && !value.is_boolean()) fault("a slice needs int, not {}", value.type_name());
  int64_t at = value.as_integer();
  if (at < 0) at += length;
  return std::clamp(at, least, most);
}

// The indices that a slice passes.
std::vector<int64_t> slice_indices(int64_t length, const Value& first, const Value& last, const Value& step) {
  int64_t stride = 1;
  if (!step.is_none()) stride = need_integer(step, "a slice");
  if (stride == 0) fault("a slice's step is 0");
  const bool down = stride < 0;
  const int64_t least = down ? -1 : 0, most = down ? length - 1 : length;
  const int64_t begin = bound(first, length, down ? most : 0, least, most);
  const int64_t end = bound(last, length, down ? -1 : length, least, most);
  std::vector<int64_t> indices;
  stride = std::clamp(stride, -length - 1, length + 1);
  for (int64_t i = begin; down ? i > end : i < end; i += stride) indices.push_back(i);
  return indices;
}

}  // namespace

std::vector<const Value*> Arguments::bind(std::string_view callee,
                                          std::initializer_list<std::string_view> parameters) const {
  std::vector<const Value*> bound(parameters.size());
  if (positional.size() > parameters.size())
    fault("{} takes {} arguments at most, found {}", callee, parameters.size(), positional.size());
  for (size_t i = 0; i < positional.size(); ++i) bound[i] = &positional[i];
  for (const auto& [name, value] : named) {
    const auto at = static_cast<size_t>(std::ranges::find(parameters, name) - parameters.begin());
    if (at == parameters.size() || bound[at] != nullptr) fault("{} with {}= is not supported", callee, name);
    bound[at] = &value;
  }
  return bound;
}

const Text& need_text(const Value& value, std::string_view callee) {
  if (!value.is_text()) fault("{} needs a str, not {}", callee, value.type_name());
  return value.as_text();
}

int64_t need_integer(const Value& value, std::string_view callee) {
  if (!value.is_integer() && !value.is_boolean()) fault("{} needs an int, not {}", callee, value.type_name());
  return value.as_integer();
}

Value attribute(const Value& value, std::string_view name, const std::string& what) {
  if (value.is_undefined()) fault("{} is undefined, and has no .{}", value.undefined_what(), name);
  if (is_method(value, name)) {
    return Value::function(
        {.kind = Function::Kind::kMethod, .name = std::string(name), .object = std::make_shared<const Value>(value)});
  }
  const Dict* dict = value.is_dict() ? &value.as_dict() : value.is_namespace() ? &value.namespace_values() : nullptr;
  const Value* found = dict == nullptr ? nullptr : dict->find(name);
  return found == nullptr ? Value(Undefined{what}) : *found;
}

Value item(const Value& value, const Value& key, const std::string& what, Budget* budget) {
  if (value.is_undefined()) fault("{} is undefined, and has no parts", value.undefined_what());
  if (key.is_text()) {
    if (value.is_dict()) {
      if (const Value* found = value.as_dict().find(key.as_text().view())) return *found;
    }
    return attribute(value, key.as_text().view(), what);
  }
  if (!key.is_integer() && !key.is_boolean()) return Undefined{what};
  int64_t at = key.as_integer();
  if (value.is_sequence()) {
    const auto size = static_cast<int64_t>(value.items().size());
    if (at < 0) at += size;
    return at < 0 || at >= size ? Value(Undefined{what}) : value.items()[static_cast<size_t>(at)];
  }
  if (value.is_text()) {
    const std::vector<size_t> places = code_points(value.as_text(), budget);
    const auto size = static_cast<int64_t>(places.size()) - 1;
    if (at < 0) at += size;
    if (at < 0 || at >= size) return Undefined{what};
    return Value::text(value.as_text().slice(places[static_cast<size_t>(at)], places[static_cast<size_t>(at) + 1]));
  }
  return Undefined{what};
}

Value slice(const Value& value, const Value& first, const Value& last, const Value& step, Budget* budget) {
  if (value.is_undefined()) fault("{} is undefined, and has no parts", value.undefined_what());
  if (value.is_sequence()) {
    Items items;
    for (const int64_t i : slice_indices(static_cast<int64_t>(value.items().size()), first, last, step))
      items.push_back(value.items()[static_cast<size_t>(i)]);
    budget->step(static_cast<int64_t>(items.size()));
    return value.is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
  }
  if (!value.is_text()) fault("{} cannot be sliced", value.type_name());
  const Text& text = value.as_text();
  const std::vector<size_t> places = code_points(text, budget);
  const auto indices = slice_indices(static_cast<int64_t>(places.size()) - 1, first, last, step);
  if (indices.empty()) return Value::text({});
  const auto place = [&](int64_t i) { return places[static_cast<size_t>(i)]; };
  if (indices.size() == 1 || indices[1] == indices[0] + 1)
    return Value::text(text.slice(place(indices.front()), place(indices.back() + 1)));
  Text result;
  for (const int64_t i : indices) result.append(text, place(i), place(i + 1));
  return Value::text(std::move(result));
}

}  // namespace coprime::templates
