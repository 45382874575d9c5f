// What a template computes with: Python's values as Jinja sees them. Containers are shared and never change once made
// (a namespace apart), so there are no cycles; their depth is bounded.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "template/text.h"

namespace coprime::templates {

struct Statement;
class Value;
using Items = std::vector<Value>;

// What is wrong with an operation; the interpreter adds file and line.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
// What the template itself refuses, by raise_exception.
class Refusal : public Fault {
 public:
  using Fault::Fault;
};

template <class... Args>
[[noreturn]] void fault(fmt::format_string<Args...> format, Args&&... args) {
  throw Fault(fmt::format(format, std::forward<Args>(args)...));
}

// Bounds of one rendering, counted down; a Fault when one is used up.
class Budget {
 public:
  static constexpr int64_t kSteps = 5'000'000;         // evaluations, iterations, elements copied or compared
  static constexpr int64_t kBytes = int64_t{1} << 30;  // of all texts made on the way
  static constexpr int64_t kOutput = 64 << 20;         // bytes of the result
  static constexpr int kDepth = 400;                   // of nested evaluations, macros' bodies among them
  static constexpr int kValueDepth = 128;              // of lists in lists

  void step(int64_t count = 1) {
    if ((steps_ -= count) < 0) fault("more than {} steps: does a loop not end?", kSteps);
  }
  void bytes(size_t count) {
    if ((bytes_ -= static_cast<int64_t>(count)) < 0) fault("texts of more than {} MiB in all", kBytes >> 20);
  }

 private:
  int64_t steps_ = kSteps, bytes_ = kBytes;
};

struct Sequence {
  Items items;
  bool tuple = false;
  int depth = 1;
};

// Ordered by insertion; a key that comes again keeps its place.
struct Dict {
  std::vector<std::pair<Text, Value>> entries;
  std::unordered_map<std::string, size_t> index;
  int depth = 1;

  const Value* find(std::string_view key) const;
  void set(const Text& key, Value value);
};

struct Namespace {
  std::shared_ptr<Dict> values;
};

struct Function {
  enum class Kind { kBuiltin, kMacro, kMethod };
  Kind kind;
  std::string name;
  const Statement* macro = nullptr;
  std::shared_ptr<const Value> object;  // whose method it is
};

struct Undefined {
  std::string what;  // for messages
};

class Value {
 public:
  Value() : Value(Undefined{}) {}
  Value(Undefined undefined) : data_(std::make_shared<const Undefined>(std::move(undefined))) {}
  static Value none(bool foreign = false);
  static Value boolean(bool value, bool foreign = false);
  static Value integer(int64_t value, bool foreign = false);
  static Value real(double value, bool foreign = false);
  static Value text(Text text) { return Value(Data(std::make_shared<const Text>(std::move(text)))); }
  static Value own_text(std::string text) { return Value::text(Text::own(std::move(text))); }
  static Value list(Items items) { return sequence(std::move(items), false); }
  static Value tuple(Items items) { return sequence(std::move(items), true); }
  static Value dict(Dict dict);
  static Value name_space(Dict values) { return Value(Data(Namespace{std::make_shared<Dict>(std::move(values))})); }
  static Value function(Function function) {
    return Value(Data(std::make_shared<const Function>(std::move(function))));
  }

  bool is_undefined() const { return std::holds_alternative<std::shared_ptr<const Undefined>>(data_); }
  bool is_none() const { return std::holds_alternative<std::monostate>(data_); }
  bool is_boolean() const { return std::holds_alternative<bool>(data_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(data_); }
  bool is_real() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_boolean() || is_integer() || is_real(); }
  bool is_text() const { return std::holds_alternative<std::shared_ptr<const Text>>(data_); }
  bool is_sequence() const { return std::holds_alternative<std::shared_ptr<const Sequence>>(data_); }
  bool is_list() const { return is_sequence() && !as_sequence().tuple; }
  bool is_tuple() const { return is_sequence() && as_sequence().tuple; }
  bool is_dict() const { return std::holds_alternative<std::shared_ptr<const Dict>>(data_); }
  bool is_namespace() const { return std::holds_alternative<Namespace>(data_); }
  bool is_function() const { return std::holds_alternative<std::shared_ptr<const Function>>(data_); }
  bool is_foreign() const { return foreign_; }  // of what is no text and no container

  // Of the kind that the value has.
  bool as_boolean() const { return std::get<bool>(data_); }
  const Text& as_text() const { return *std::get<std::shared_ptr<const Text>>(data_); }
  const Sequence& as_sequence() const { return *std::get<std::shared_ptr<const Sequence>>(data_); }
  const Items& items() const { return as_sequence().items; }
  const Dict& as_dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  Dict& namespace_values() const { return *std::get<Namespace>(data_).values; }
  const Function& as_function() const { return *std::get<std::shared_ptr<const Function>>(data_); }
  const std::string& undefined_what() const { return std::get<std::shared_ptr<const Undefined>>(data_)->what; }
  int64_t as_integer() const;  // a boolean counts as 0 or 1
  double as_real() const;      // of any number

  bool truthy() const;
  std::string_view type_name() const;  // as Python says it: "str", "dict"
  int depth() const;                   // 0 of what is no container; a Fault for a namespace, which may stand in none

 private:
  using Data = std::variant<std::monostate, bool, int64_t, double, std::shared_ptr<const Undefined>,
                            std::shared_ptr<const Text>, std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>,
                            Namespace, std::shared_ptr<const Function>>;
  explicit Value(Data data, bool foreign = false) : data_(std::move(data)), foreign_(foreign) {}
  static Value sequence(Items items, bool tuple);

  Data data_;
  bool foreign_ = false;
};

// Python's == , and < (a Fault for kinds that have no order).
bool equal(const Value& a, const Value& b, Budget* budget);
bool less(const Value& a, const Value& b, Budget* budget);
bool contains(const Value& container, const Value& value, Budget* budget);

// What a loop over the value passes: elements, keys, code points; none of what is undefined.
Items iterate(const Value& value, Budget* budget);

// str(): what {{ }} writes. With `quoted`, repr().
void write(const Value& value, bool quoted, Text* out, Budget* budget);
Text to_text(const Value& value, Budget* budget);

// json.dumps(ensure_ascii=False); indent < 0: on one line. What stems from the caller's data stays foreign.
struct JsonForm {
  int indent = -1;
  bool sort_keys = false;
  std::string item_separator = ", ", key_separator = ": ";
};
Text to_json(const Value& value, const JsonForm& form, Budget* budget);

}  // namespace coprime::templates
