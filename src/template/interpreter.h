// Runs a parsed template.
#pragma once

#include <ctime>
#include <string>
#include <unordered_map>
#include <vector>

#include "template/builtins.h"
#include "template/syntax.h"

namespace coprime::templates {

class Interpreter {
 public:
  // `variables` are what the template finds; `now` is what strftime_now writes.
  Interpreter(const std::vector<Statement>& program, Dict variables, const std::tm& now);

  Text run();                         // once; a Fault where it fails
  int line() const { return line_; }  // that was reached

 private:
  enum class Flow { kOn, kBreak, kContinue };
  using Scope = std::unordered_map<std::string, Value>;
  struct Loop {
    const Items* items;
    size_t index;
  };
  class Deeper;

  Flow run(const std::vector<Statement>& statements);
  Flow run(const Statement& statement);
  Flow run_loop(const Statement& statement);
  void assign(const std::vector<std::string>& targets, Value value);
  void set_attribute(const Statement& statement);
  Text captured(const std::vector<Statement>& body);  // in a scope of its own
  void emit(const Text& text);

  Value evaluate(const Expression& expression);
  Value compute(const Expression& expression);
  Value look_up(const std::string& name) const;
  Value loop_attribute(const std::string& name) const;
  Value compare(const Expression& expression);
  Value binary(const Expression& expression);
  Value arithmetic(const std::string& op, const Value& a, const Value& b);
  Value call(const Expression& expression);
  Value call_builtin(const std::string& name, const Arguments& arguments);
  Value call_macro(const Statement& macro, const Arguments& arguments);
  Arguments arguments_of(const Expression& expression);
  Dict dict_of(const Expression& expression);

  const std::vector<Statement>& program_;
  const std::tm now_;
  Budget budget_;
  std::vector<Scope> scopes_;  // the first: the template's own and the caller's
  std::vector<Loop> loops_;
  size_t scopes_begin_ = 0, loops_begin_ = 0;  // of the macro that runs
  Text* out_ = nullptr;
  int line_ = 0, depth_ = 0;
};

}  // namespace coprime::templates
