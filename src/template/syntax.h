// A parsed template.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "template/value.h"

namespace coprime::templates {

struct Expression {
  enum class Kind {
    kConstant,
    kName,
    kList,
    kTuple,
    kDict,       // parts: key, value, key, value
    kAttribute,  // parts[0].name
    kSubscript,  // parts[0][parts[1]]
    kSlice,      // parts[0][parts[1]:parts[2]:parts[3]]; an absent bound is the constant none
    kCall,       // parts[0](the others); the last keywords.size() of them are named
    kFilter,     // parts[0] | name(the others)
    kTest,       // parts[0] is name(the others)
    kNot,
    kAnd,
    kOr,
    kChoice,   // parts[0] if parts[1] else parts[2]
    kCompare,  // parts[0] names[0] parts[1] names[1] parts[2] ...
    kUnary,    // name: "-" or "+"
    kBinary,   // name: + - * / // % ** ~
  };
  Kind kind = Kind::kConstant;
  int line = 0;
  std::string name;
  Value constant;
  std::vector<Expression> parts;
  std::vector<std::string> keywords, names;
  int depth = 1;
};

struct Statement {
  enum class Kind {
    kText,
    kPrint,         // expressions[0]
    kIf,            // expressions[0], body, otherwise
    kFor,           // targets in expressions[0], where expressions[1] if there is one; body, otherwise
    kSet,           // targets = expressions[0]
    kSetAttribute,  // targets[0].name = expressions[0]
    kSetBlock,      // targets[0] = what the body writes
    kMacro,         // name(targets), the last expressions.size() targets having defaults; body
    kBreak,
    kContinue,
    kBlock,  // body; {% generation %}
  };
  Kind kind = Kind::kText;
  int line = 0;
  std::string text, name;
  std::vector<std::string> targets;
  std::vector<Expression> expressions;
  std::vector<Statement> body, otherwise;
};

// Error(kModel): `where`, line, the construct that is not supported or not closed, and what is expected.
std::vector<Statement> parse(std::string_view source, const std::string& where);

// What parsing looks up.
bool is_filter(std::string_view name);
bool is_test(std::string_view name);

}  // namespace coprime::templates
