#include "template/value.h"

#include <algorithm>
#include <cmath>

#include "tokenizer/utf8.h"

namespace coprime::templates {

const Value* Dict::find(std::string_view key) const {
  const auto found = index.find(std::string(key));
  return found == index.end() ? nullptr : &entries[found->second].second;
}

void Dict::set(const Text& key, Value value) {
  depth = std::max(depth, value.depth() + 1);
  if (depth > Budget::kValueDepth) fault("values nested more than {} deep", Budget::kValueDepth);
  const auto [at, is_new] = index.emplace(key.bytes(), entries.size());
  if (is_new) {
    entries.emplace_back(key, std::move(value));
  } else {
    entries[at->second].second = std::move(value);
  }
}

Value Value::none(bool foreign) { return Value(Data(std::monostate()), foreign); }
Value Value::boolean(bool value, bool foreign) { return Value(Data(value), foreign); }
Value Value::integer(int64_t value, bool foreign) { return Value(Data(value), foreign); }
Value Value::real(double value, bool foreign) { return Value(Data(value), foreign); }

Value Value::dict(Dict dict) { return Value(Data(std::make_shared<const Dict>(std::move(dict)))); }

Value Value::sequence(Items items, bool tuple) {
  Sequence result{std::move(items), tuple};
  for (const Value& item : result.items) result.depth = std::max(result.depth, item.depth() + 1);
  if (result.depth > Budget::kValueDepth) fault("values nested more than {} deep", Budget::kValueDepth);
  return Value(Data(std::make_shared<const Sequence>(std::move(result))));
}

int64_t Value::as_integer() const {
  if (is_boolean()) return as_boolean() ? 1 : 0;
  return std::get<int64_t>(data_);
}

double Value::as_real() const { return is_real() ? std::get<double>(data_) : static_cast<double>(as_integer()); }

bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_real()) return as_real() != 0;
  if (is_number()) return as_integer() != 0;
  if (is_text()) return !as_text().empty();
  if (is_sequence()) return !items().empty();
  if (is_dict()) return !as_dict().entries.empty();
  return true;
}

std::string_view Value::type_name() const {
  if (is_undefined()) return "undefined";
  if (is_none()) return "none";
  if (is_boolean()) return "bool";
  if (is_integer()) return "int";
  if (is_real()) return "float";
  if (is_text()) return "str";
  if (is_dict()) return "dict";
  if (is_namespace()) return "namespace";
  if (is_function()) return "function";
  return is_tuple() ? "tuple" : "list";
}

int Value::depth() const {
  if (is_sequence()) return as_sequence().depth;
  if (is_dict()) return as_dict().depth;
  if (is_namespace()) fault("a namespace inside another value is not supported");
  if (is_function() && as_function().object) return as_function().object->depth() + 1;
  return 0;
}

namespace {

bool equal_dicts(const Dict& a, const Dict& b, Budget* budget) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::ranges::all_of(a.entries, [&](const auto& entry) {
    const Value* other = b.find(entry.first.view());
    return other != nullptr && equal(entry.second, *other, budget);
  });
}

}  // namespace

bool equal(const Value& a, const Value& b, Budget* budget) {
  budget->step();
  if (a.is_number() && b.is_number())
    return a.is_real() || b.is_real() ? a.as_real() == b.as_real() : a.as_integer() == b.as_integer();
  if (a.is_text() && b.is_text()) {
    budget->bytes(std::min(a.as_text().size(), b.as_text().size()));
    return a.as_text().bytes() == b.as_text().bytes();
  }
  if (a.is_sequence() && b.is_sequence()) {
    return a.is_tuple() == b.is_tuple() &&
           std::ranges::equal(a.items(), b.items(),
                              [&](const Value& x, const Value& y) { return equal(x, y, budget); });
  }
  if (a.is_dict() && b.is_dict()) return equal_dicts(a.as_dict(), b.as_dict(), budget);
  if (a.is_namespace() && b.is_namespace()) return &a.namespace_values() == &b.namespace_values();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

bool less(const Value& a, const Value& b, Budget* budget) {
  budget->step();
  if (a.is_number() && b.is_number())
    return a.is_real() || b.is_real() ? a.as_real() < b.as_real() : a.as_integer() < b.as_integer();
  if (a.is_text() && b.is_text())
    return a.as_text().bytes() < b.as_text().bytes();  // UTF-8 sorts as its code points do
  fault("{} and {} have no order", a.type_name(), b.type_name());
}

bool contains(const Value& container, const Value& value, Budget* budget) {
  if (container.is_text()) {
    if (!value.is_text()) fault("'in' a str needs a str, not {}", value.type_name());
    const std::string& text = container.as_text().bytes();
    const std::string& part = value.as_text().bytes();
    budget->bytes(text.size());
    return part.empty() || ::memmem(text.data(), text.size(), part.data(), part.size()) != nullptr;
  }
  if (container.is_dict()) return value.is_text() && container.as_dict().find(value.as_text().view()) != nullptr;
  if (container.is_sequence())
    return std::ranges::any_of(container.items(), [&](const Value& item) { return equal(item, value, budget); });
  if (container.is_undefined()) return false;
  fault("'in' needs a str, a list or a dict, not {}", container.type_name());
}

Items iterate(const Value& value, Budget* budget) {
  Items items;
  if (value.is_sequence()) {
    items = value.items();
  } else if (value.is_dict()) {
    for (const auto& [key, entry] : value.as_dict().entries) items.push_back(Value::text(key));
  } else if (value.is_text()) {
    const Text& text = value.as_text();
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      next_code_point(text.view(), &at);
      budget->step();
      items.push_back(Value::text(text.slice(begin, at)));
    }
  } else if (!value.is_undefined()) {
    fault("{} cannot be iterated", value.type_name());
  }
  budget->step(static_cast<int64_t>(items.size()));
  return items;
}

}  // namespace coprime::templates
