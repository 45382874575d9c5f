#include "template/interpreter.h"

#include <algorithm>
#include <cmath>

namespace coprime::templates {
namespace {

using Kind = Expression::Kind;

constexpr size_t kMaxRange = 100'000;  // as Jinja's sandbox has it

// An expression in few words, for messages.
std::string describe(const Expression& expression) {
  switch (expression.kind) {
    case Kind::kName:
      return expression.name;
    case Kind::kAttribute:
      return fmt::format("{}.{}", describe(expression.parts[0]), expression.name);
    case Kind::kSubscript: {
      const Expression& key = expression.parts[1];
      const bool constant = key.kind == Kind::kConstant;
      const std::string text = !constant                   ? "..."
                               : key.constant.is_text()    ? fmt::format("'{}'", key.constant.as_text().bytes())
                               : key.constant.is_integer() ? fmt::to_string(key.constant.as_integer())
                                                           : "...";
      return fmt::format("{}[{}]", describe(expression.parts[0]), text);
    }
    default:
      return "this value";
  }
}

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

int64_t integer_arithmetic(char op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflows = false;
  if (op == '+') {
    overflows = __builtin_add_overflow(a, b, &result);
  } else if (op == '-') {
    overflows = __builtin_sub_overflow(a, b, &result);
  } else if (op == '*') {
    overflows = __builtin_mul_overflow(a, b, &result);
  } else if (b == -1) {
    if (op != '%') overflows = __builtin_sub_overflow(int64_t{0}, a, &result);
  } else {
    result = op == '%' ? a - b * floor_divide(a, b) : floor_divide(a, b);
  }
  if (overflows) fault("a number beyond 64 bits");
  return result;
}

double real_arithmetic(char op, double a, double b) {
  switch (op) {
    case '+':
      return a + b;
    case '-':
      return a - b;
    case '*':
      return a * b;
    case '%':
      return a - b * std::floor(a / b);
    default:
      return std::floor(a / b);
  }
}

}  // namespace

class Interpreter::Deeper {
 public:
  explicit Deeper(Interpreter* interpreter) : interpreter_(interpreter) {
    if (++interpreter_->depth_ > Budget::kDepth) {
      --interpreter_->depth_;
      fault("nested more than {} deep: does a macro call itself without end?", Budget::kDepth);
    }
  }
  ~Deeper() { --interpreter_->depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  Interpreter* interpreter_;
};

Interpreter::Interpreter(const std::vector<Statement>& program, Dict variables, const std::tm& now)
    : program_(program), now_(now), scopes_(1) {
  for (const char* name : {"range", "namespace", "dict", "raise_exception", "strftime_now"})
    scopes_[0].emplace(name, Value::function({.kind = Function::Kind::kBuiltin, .name = name}));
  for (auto& [name, value] : variables.entries) scopes_[0].insert_or_assign(name.bytes(), value);
}

Text Interpreter::run() {
  Text result;
  out_ = &result;
  run(program_);
  return result;
}

void Interpreter::emit(const Text& text) {
  budget_.bytes(text.size());
  out_->append(text);
  if (out_->size() > static_cast<size_t>(Budget::kOutput)) fault("more than {} MiB of text", Budget::kOutput >> 20);
}

Interpreter::Flow Interpreter::run(const std::vector<Statement>& statements) {
  const Deeper deeper(this);
  for (const Statement& statement : statements) {
    if (const Flow flow = run(statement); flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::run(const Statement& statement) {
  line_ = statement.line;
  budget_.step();
  switch (statement.kind) {
    case Statement::Kind::kText:
      emit(Text::own(statement.text));
      break;
    case Statement::Kind::kPrint: {
      const Value value = evaluate(statement.expressions[0]);
      if (value.is_text()) {
        emit(value.as_text());
      } else {
        emit(to_text(value, &budget_));
      }
      break;
    }
    case Statement::Kind::kIf:
      return run(evaluate(statement.expressions[0]).truthy() ? statement.body : statement.otherwise);
    case Statement::Kind::kFor:
      return run_loop(statement);
    case Statement::Kind::kSet:
      assign(statement.targets, evaluate(statement.expressions[0]));
      break;
    case Statement::Kind::kSetAttribute:
      set_attribute(statement);
      break;
    case Statement::Kind::kSetBlock: {
      Text text = captured(statement.body);
      assign(statement.targets, Value::text(std::move(text)));
      break;
    }
    case Statement::Kind::kMacro:
      scopes_.back().insert_or_assign(
          statement.name,
          Value::function({.kind = Function::Kind::kMacro, .name = statement.name, .macro = &statement}));
      break;
    case Statement::Kind::kBreak:
      return Flow::kBreak;
    case Statement::Kind::kContinue:
      return Flow::kContinue;
    case Statement::Kind::kBlock: {
      scopes_.emplace_back();
      const Flow flow = run(statement.body);
      scopes_.pop_back();
      return flow;
    }
  }
  return Flow::kOn;
}

void Interpreter::assign(const std::vector<std::string>& targets, Value value) {
  if (targets.size() == 1) {
    scopes_.back().insert_or_assign(targets[0], std::move(value));
    return;
  }
  const Items parts = iterate(value, &budget_);
  if (parts.size() != targets.size()) fault("{} values for {} names", parts.size(), targets.size());
  for (size_t i = 0; i < parts.size(); ++i) scopes_.back().insert_or_assign(targets[i], parts[i]);
}

void Interpreter::set_attribute(const Statement& statement) {
  const Value target = look_up(statement.targets[0]);
  if (!target.is_namespace()) fault("{} is no namespace: only a namespace's parts can be set", statement.targets[0]);
  target.namespace_values().set(Text::own(statement.name), evaluate(statement.expressions[0]));
}

Interpreter::Flow Interpreter::run_loop(const Statement& statement) {
  Items items = iterate(evaluate(statement.expressions[0]), &budget_);
  if (statement.expressions.size() > 1) {
    Items kept;
    for (const Value& each : items) {
      scopes_.emplace_back();
      assign(statement.targets, each);
      const bool keep = evaluate(statement.expressions[1]).truthy();
      scopes_.pop_back();
      if (keep) kept.push_back(each);
    }
    items = std::move(kept);
  }
  if (items.empty()) return run(statement.otherwise);
  for (size_t i = 0; i < items.size(); ++i) {
    budget_.step();
    loops_.push_back({&items, i});
    scopes_.emplace_back();
    assign(statement.targets, items[i]);
    const Flow flow = run(statement.body);
    scopes_.pop_back();
    loops_.pop_back();
    if (flow == Flow::kBreak) break;
  }
  return Flow::kOn;
}

Text Interpreter::captured(const std::vector<Statement>& body) {
  Text text;
  Text* const outer = std::exchange(out_, &text);
  scopes_.emplace_back();
  run(body);
  scopes_.pop_back();
  out_ = outer;
  return text;
}

Value Interpreter::look_up(const std::string& name) const {
  for (size_t i = scopes_.size(); i > scopes_begin_; --i) {
    const auto found = scopes_[i - 1].find(name);
    if (found != scopes_[i - 1].end()) return found->second;
  }
  const auto found = scopes_[0].find(name);
  return found != scopes_[0].end() ? found->second : Value(Undefined{name});
}

Value Interpreter::loop_attribute(const std::string& name) const {
  const Loop& loop = loops_.back();
  const auto index = static_cast<int64_t>(loop.index), length = static_cast<int64_t>(loop.items->size());
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(length - index);
  if (name == "revindex0") return Value::integer(length - index - 1);
  if (name == "length") return Value::integer(length);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index == length - 1);
  if (name == "previtem") return index == 0 ? Value(Undefined{"loop.previtem"}) : (*loop.items)[loop.index - 1];
  if (name == "nextitem")
    return index + 1 == length ? Value(Undefined{"loop.nextitem"}) : (*loop.items)[loop.index + 1];
  fault("loop.{} is not supported", name);
}

Value Interpreter::evaluate(const Expression& expression) {
  const Deeper deeper(this);
  line_ = expression.line;
  budget_.step();
  return compute(expression);
}

Value Interpreter::compute(const Expression& expression) {
  const auto part = [&](size_t i) { return evaluate(expression.parts[i]); };
  switch (expression.kind) {
    case Kind::kConstant:
      return expression.constant;
    case Kind::kName:
      return look_up(expression.name);
    case Kind::kList:
    case Kind::kTuple: {
      Items items;
      for (const Expression& each : expression.parts) items.push_back(evaluate(each));
      return expression.kind == Kind::kList ? Value::list(std::move(items)) : Value::tuple(std::move(items));
    }
    case Kind::kDict:
      return Value::dict(dict_of(expression));
    case Kind::kAttribute: {
      const Expression& object = expression.parts[0];
      if (object.kind == Kind::kName && object.name == "loop" && loops_.size() > loops_begin_)
        return loop_attribute(expression.name);
      return attribute(evaluate(object), expression.name, describe(expression));
    }
    case Kind::kSubscript:
      return item(part(0), part(1), describe(expression), &budget_);
    case Kind::kSlice:
      return slice(part(0), part(1), part(2), part(3), &budget_);
    case Kind::kCall:
      return call(expression);
    case Kind::kFilter:
      return apply_filter(expression.name, part(0), arguments_of(expression), &budget_);
    case Kind::kTest:
      return Value::boolean(apply_test(expression.name, part(0), arguments_of(expression), &budget_));
    case Kind::kNot:
      return Value::boolean(!part(0).truthy());
    case Kind::kAnd: {
      Value left = part(0);
      return left.truthy() ? part(1) : left;
    }
    case Kind::kOr: {
      Value left = part(0);
      return left.truthy() ? left : part(1);
    }
    case Kind::kChoice:
      return part(1).truthy() ? part(0) : part(2);
    case Kind::kCompare:
      return compare(expression);
    case Kind::kUnary: {
      const Value value = part(0);
      if (value.is_real())
        return Value::real(expression.name == "-" ? -value.as_real() : value.as_real(), value.is_foreign());
      const int64_t number = need_integer(value, expression.name);
      return Value::integer(expression.name == "-" ? integer_arithmetic('-', 0, number) : number, value.is_foreign());
    }
    case Kind::kBinary:
      return binary(expression);
  }
  fault("an expression of an unknown kind");
}

Dict Interpreter::dict_of(const Expression& expression) {
  Dict dict;
  for (size_t i = 0; i < expression.parts.size(); i += 2) {
    const Value key = evaluate(expression.parts[i]);
    dict.set(need_text(key, "a dict's key"), evaluate(expression.parts[i + 1]));
  }
  return dict;
}

Value Interpreter::compare(const Expression& expression) {
  Value left = evaluate(expression.parts[0]);
  for (size_t i = 0; i < expression.names.size(); ++i) {
    Value right = evaluate(expression.parts[i + 1]);
    const std::string& op = expression.names[i];
    const bool holds = op == "=="       ? equal(left, right, &budget_)
                       : op == "!="     ? !equal(left, right, &budget_)
                       : op == "<"      ? less(left, right, &budget_)
                       : op == ">"      ? less(right, left, &budget_)
                       : op == "<="     ? !less(right, left, &budget_)
                       : op == ">="     ? !less(left, right, &budget_)
                       : op == "not in" ? !contains(right, left, &budget_)
                                        : contains(right, left, &budget_);
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::binary(const Expression& expression) {
  const Value a = evaluate(expression.parts[0]), b = evaluate(expression.parts[1]);
  const std::string& op = expression.name;
  if (op == "~") {
    Text text = to_text(a, &budget_);
    budget_.bytes(text.size());
    write(b, false, &text, &budget_);
    return Value::text(std::move(text));
  }
  for (const Value* value : {&a, &b})
    if (value->is_undefined()) fault("{} is undefined, and cannot be used with \"{}\"", value->undefined_what(), op);
  if (op == "+" && a.is_text() && b.is_text()) {
    budget_.bytes(a.as_text().size() + b.as_text().size());
    Text text = a.as_text();
    text.append(b.as_text());
    return Value::text(std::move(text));
  }
  if (op == "+" && a.is_sequence() && b.is_sequence() && a.is_tuple() == b.is_tuple()) {
    Items items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    budget_.step(static_cast<int64_t>(items.size()));
    return a.is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
  }
  return arithmetic(op, a, b);
}

Value Interpreter::arithmetic(const std::string& op, const Value& a, const Value& b) {
  if (op == "*" && a.is_text() && b.is_integer()) {
    Text text;
    for (int64_t i = 0; i < b.as_integer(); ++i) {
      budget_.step();
      budget_.bytes(a.as_text().size());
      text.append(a.as_text());
    }
    return Value::text(std::move(text));
  }
  if (op == "**" || !a.is_number() || !b.is_number())
    fault("\"{}\" of {} and {} is not supported", op, a.type_name(), b.type_name());
  const bool foreign = a.is_foreign() || b.is_foreign();
  const bool divides = op == "/" || op == "//" || op == "%";
  if (divides && b.as_real() == 0) fault("division by 0");
  if (op == "/") return Value::real(a.as_real() / b.as_real(), foreign);
  const char code = op == "//" ? 'd' : op[0];
  if (a.is_real() || b.is_real()) return Value::real(real_arithmetic(code, a.as_real(), b.as_real()), foreign);
  return Value::integer(integer_arithmetic(code, a.as_integer(), b.as_integer()), foreign);
}

Arguments Interpreter::arguments_of(const Expression& expression) {
  Arguments arguments;
  const size_t named = expression.parts.size() - expression.keywords.size();
  for (size_t i = 1; i < expression.parts.size(); ++i) {
    Value value = evaluate(expression.parts[i]);
    if (i < named) {
      arguments.positional.push_back(std::move(value));
    } else {
      arguments.named.emplace_back(expression.keywords[i - named], std::move(value));
    }
  }
  return arguments;
}

Value Interpreter::call(const Expression& expression) {
  const Value callee = evaluate(expression.parts[0]);
  if (callee.is_undefined()) fault("{} is undefined, or not supported, and cannot be called", callee.undefined_what());
  if (!callee.is_function()) fault("{} cannot be called", describe(expression.parts[0]));
  const Function& function = callee.as_function();
  const Arguments arguments = arguments_of(expression);
  line_ = expression.line;
  switch (function.kind) {
    case Function::Kind::kBuiltin:
      return call_builtin(function.name, arguments);
    case Function::Kind::kMacro:
      return call_macro(*function.macro, arguments);
    case Function::Kind::kMethod:
      return call_method(*function.object, function.name, arguments, &budget_);
  }
  fault("{} cannot be called", function.name);
}

Value Interpreter::call_builtin(const std::string& name, const Arguments& arguments) {
  if (name == "namespace" || name == "dict") {
    Dict values;
    if (!arguments.positional.empty()) {
      if (arguments.positional.size() > 1 || !arguments.positional[0].is_dict()) fault("{} takes one dict", name);
      values = arguments.positional[0].as_dict();
    }
    for (const auto& [key, value] : arguments.named) values.set(Text::own(key), value);
    return name == "dict" ? Value::dict(std::move(values)) : Value::name_space(std::move(values));
  }
  if (name == "raise_exception") {
    const auto bound = arguments.bind(name, {"message"});
    throw Refusal(bound[0] == nullptr ? "" : to_text(*bound[0], &budget_).bytes());
  }
  if (name == "strftime_now") {
    const auto bound = arguments.bind(name, {"format"});
    if (bound[0] == nullptr) fault("strftime_now needs a format");
    char text[256];
    const std::string format = need_text(*bound[0], name).bytes();
    const size_t count = std::strftime(text, sizeof text, format.c_str(), &now_);
    if (count == 0 && !format.empty()) fault("strftime_now: the date is longer than {} bytes", sizeof text);
    return Value::own_text(std::string(text, count));
  }
  const auto bound = arguments.bind(name, {"first", "last", "step"});
  if (bound[0] == nullptr) fault("range needs an argument");
  const int64_t a = need_integer(*bound[0], name);
  const int64_t first = bound[1] == nullptr ? 0 : a, last = bound[1] == nullptr ? a : need_integer(*bound[1], name);
  const int64_t step = bound[2] == nullptr ? 1 : need_integer(*bound[2], name);
  if (step == 0) fault("range with a step of 0");
  Items items;
  for (int64_t i = first; step > 0 ? i < last : i > last;) {
    if (items.size() == kMaxRange) fault("range of more than {} numbers", kMaxRange);
    items.push_back(Value::integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::list(std::move(items));
}

Value Interpreter::call_macro(const Statement& macro, const Arguments& arguments) {
  Scope scope;
  if (arguments.positional.size() > macro.targets.size())
    fault("{} takes {} arguments at most, found {}", macro.name, macro.targets.size(), arguments.positional.size());
  for (size_t i = 0; i < arguments.positional.size(); ++i) scope.emplace(macro.targets[i], arguments.positional[i]);
  for (const auto& [name, value] : arguments.named) {
    if (std::ranges::find(macro.targets, name) == macro.targets.end() || !scope.emplace(name, value).second)
      fault("{} with {}= is not supported", macro.name, name);
  }
  const size_t scopes_begin = std::exchange(scopes_begin_, scopes_.size());
  const size_t loops_begin = std::exchange(loops_begin_, loops_.size());
  scopes_.push_back(std::move(scope));
  const size_t without_default = macro.targets.size() - macro.expressions.size();
  for (size_t i = 0; i < macro.targets.size(); ++i) {
    if (scopes_.back().contains(macro.targets[i])) continue;
    Value value =
        i < without_default ? Value(Undefined{macro.targets[i]}) : evaluate(macro.expressions[i - without_default]);
    scopes_.back().emplace(macro.targets[i], std::move(value));
  }
  Text text = captured(macro.body);
  scopes_.pop_back();
  scopes_begin_ = scopes_begin;
  loops_begin_ = loops_begin;
  return Value::text(std::move(text));
}

}  // namespace coprime::templates
