// Recursive descent, with Jinja's levels of precedence.
#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "template/lexer.h"
#include "template/syntax.h"

namespace coprime::templates {
namespace {

using Kind = Expression::Kind;

constexpr int kMaxNesting = 150;  // of expressions, and of statements
static_assert(2 * kMaxNesting < Budget::kDepth);

class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::string& where) : tokens_(std::move(tokens)), where_(where) {}

  std::vector<Statement> run() {
    std::vector<Statement> result = statements({});
    if (now().kind != Token::Kind::kEnd) refuse("{} closes nothing that is open", what());
    return result;
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::kModel, "{}, line {}: {}", where_, now().line, fmt::format(format, std::forward<Args>(args)...));
  }

  const Token& now() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  void next() { at_ += now().kind != Token::Kind::kEnd; }

  std::string what() const {  // for messages
    switch (now().kind) {
      case Token::Kind::kPrintEnd:
        return "\"}}\"";
      case Token::Kind::kTagEnd:
        return "\"%}\"";
      case Token::Kind::kEnd:
        return "the template's end";
      default:
        return fmt::format("{:?}", std::string_view(now().text).substr(0, 40));
    }
  }

  bool is(std::string_view op) const { return now().kind == Token::Kind::kOperator && now().text == op; }
  bool is_word(std::string_view name) const { return now().kind == Token::Kind::kName && now().text == name; }
  bool take(std::string_view op) {
    if (!is(op)) return false;
    next();
    return true;
  }
  bool take_word(std::string_view name) {
    if (!is_word(name)) return false;
    next();
    return true;
  }
  void expect(std::string_view op) {
    if (!take(op)) refuse("expected \"{}\", found {}", op, what());
  }
  std::string expect_name() {
    if (now().kind != Token::Kind::kName) refuse("expected a name, found {}", what());
    std::string name = now().text;
    next();
    return name;
  }
  void expect_tag_end() {
    if (now().kind != Token::Kind::kTagEnd) refuse("expected \"%}}\", found {}", what());
    next();
  }

  class Nesting {
   public:
    explicit Nesting(Parser* parser) : parser_(parser) {
      if (++parser_->nesting_ > kMaxNesting) parser_->refuse("nested more than {} deep", kMaxNesting);
    }
    ~Nesting() { --parser_->nesting_; }

   private:
    Parser* parser_;
  };

  // ---- statements

  // Up to a tag that is one of `ends`, which is left to the caller behind its {%.
  std::vector<Statement> statements(std::initializer_list<std::string_view> ends) {
    const Nesting nesting(this);
    std::vector<Statement> result;
    for (;;) {
      switch (now().kind) {
        case Token::Kind::kText:
          result.push_back({.kind = Statement::Kind::kText, .line = now().line, .text = now().text});
          next();
          break;
        case Token::Kind::kPrintBegin:
          next();
          result.push_back({.kind = Statement::Kind::kPrint, .line = now().line});
          result.back().expressions.push_back(tuple_or_one());
          if (now().kind != Token::Kind::kPrintEnd) refuse("expected \"}}}}\", found {}", what());
          next();
          break;
        case Token::Kind::kTagBegin:
          next();
          if (now().kind == Token::Kind::kName && std::ranges::find(ends, now().text) != ends.end()) return result;
          result.push_back(tag());
          break;
        default:
          if (ends.size() > 0) refuse("expected {{% {} %}}, found {}", *(ends.end() - 1), what());
          return result;
      }
    }
  }

  Statement tag() {
    const int line = now().line;
    const std::string name = expect_name();
    Statement result{.line = line};
    if (name == "if") {
      conditional(&result);
    } else if (name == "for") {
      loop(&result);
    } else if (name == "set") {
      assignment(&result);
    } else if (name == "macro") {
      macro(&result);
    } else if (name == "generation") {
      result.kind = Statement::Kind::kBlock;
      expect_tag_end();
      result.body = statements({"endgeneration"});
      close();
    } else if (name == "break" || name == "continue") {
      if (loops_ == 0) refuse("{{% {} %}} stands in no loop", name);
      result.kind = name == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue;
      expect_tag_end();
    } else {
      refuse("{{% {} %}} is not supported here; supported: if, for, set, macro, break, continue, generation", name);
    }
    return result;
  }

  void close() {  // {% endsomething %}
    next();
    expect_tag_end();
  }

  void conditional(Statement* result) {
    result->kind = Statement::Kind::kIf;
    result->expressions.push_back(tuple_or_one(false));
    expect_tag_end();
    result->body = statements({"elif", "else", "endif"});
    if (is_word("elif")) {
      const Nesting nesting(this);
      Statement other{.line = now().line};
      next();
      conditional(&other);
      result->otherwise.push_back(std::move(other));
      return;
    }
    if (take_word("else")) {
      expect_tag_end();
      result->otherwise = statements({"endif"});
    }
    close();
  }

  std::vector<std::string> targets() {
    std::vector<std::string> names;
    const bool bracket = take("(");
    do {
      names.push_back(target());
    } while (take(",") && now().kind == Token::Kind::kName && !is_word("in"));
    if (bracket) expect(")");
    return names;
  }

  std::string target() {
    std::string name = expect_name();
    for (const std::string_view word : {"true", "false", "none", "True", "False", "None", "loop"})
      if (name == word) refuse("{} cannot be assigned to", name);
    return name;
  }

  void loop(Statement* result) {
    result->kind = Statement::Kind::kFor;
    result->targets = targets();
    if (!take_word("in")) refuse("expected \"in\", found {}", what());
    result->expressions.push_back(tuple_or_one(false));
    if (take_word("if")) result->expressions.push_back(expression());
    if (is_word("recursive")) refuse("recursive loops are not supported: write a macro that calls itself");
    expect_tag_end();
    ++loops_;
    result->body = statements({"else", "endfor"});
    --loops_;
    if (take_word("else")) {
      expect_tag_end();
      result->otherwise = statements({"endfor"});
    }
    close();
  }

  void assignment(Statement* result) {
    result->kind = Statement::Kind::kSet;
    result->targets = targets();
    if (result->targets.size() == 1 && take(".")) {
      result->kind = Statement::Kind::kSetAttribute;
      result->name = expect_name();
    }
    if (take("=")) {
      result->expressions.push_back(tuple_or_one());
      return expect_tag_end();
    }
    if (result->kind != Statement::Kind::kSet || result->targets.size() != 1)
      refuse("expected \"=\", found {}", what());
    result->kind = Statement::Kind::kSetBlock;
    expect_tag_end();
    result->body = statements({"endset"});
    close();
  }

  void macro(Statement* result) {
    if (loops_ > 0 || in_macro_) refuse("a macro inside a loop or a macro is not supported: define it outside");
    result->kind = Statement::Kind::kMacro;
    result->name = target();
    expect("(");
    while (!is(")")) {
      result->targets.push_back(target());
      if (take("=")) {
        result->expressions.push_back(expression());
      } else if (!result->expressions.empty()) {
        refuse("the parameter {} needs a default, as one before it has", result->targets.back());
      }
      if (!is(")")) expect(",");
    }
    next();
    expect_tag_end();
    in_macro_ = true;
    result->body = statements({"endmacro"});
    in_macro_ = false;
    close();
  }

  // ---- expressions

  Expression make(Kind kind, int line, std::vector<Expression> parts, std::string name = {}) {
    Expression result{.kind = kind, .line = line, .name = std::move(name), .parts = std::move(parts)};
    for (const Expression& part : result.parts) result.depth = std::max(result.depth, part.depth + 1);
    if (result.depth > kMaxNesting) refuse("an expression nested more than {} deep", kMaxNesting);
    return result;
  }
  Expression with(Kind kind, Expression first, std::string name = {}) {
    std::vector<Expression> parts;
    const int line = first.line;
    parts.push_back(std::move(first));
    return make(kind, line, std::move(parts), std::move(name));
  }
  Expression with(Kind kind, Expression first, Expression second, std::string name = {}) {
    std::vector<Expression> parts;
    const int line = first.line;
    parts.push_back(std::move(first));
    parts.push_back(std::move(second));
    return make(kind, line, std::move(parts), std::move(name));
  }
  Expression constant(Value value) const {
    return {.kind = Kind::kConstant, .line = now().line, .constant = std::move(value)};
  }

  // A tuple may go without brackets.
  Expression tuple_or_one(bool with_choices = true) {
    const int line = now().line;
    const auto one = [&] { return with_choices ? expression() : disjunction(); };
    Expression first = one();
    if (!is(",")) return first;
    std::vector<Expression> parts;
    parts.push_back(std::move(first));
    while (take(",") && starts_expression()) parts.push_back(one());
    return make(Kind::kTuple, line, std::move(parts));
  }

  bool starts_expression() const {
    return now().kind == Token::Kind::kName || now().kind == Token::Kind::kString ||
           now().kind == Token::Kind::kInteger || now().kind == Token::Kind::kReal || is("(") || is("[") || is("{") ||
           is("-") || is("+");
  }

  Expression expression() {
    const Nesting nesting(this);
    Expression result = disjunction();
    while (take_word("if")) {
      Expression condition = disjunction();
      const int line = result.line;
      std::vector<Expression> parts;
      parts.push_back(std::move(result));
      parts.push_back(std::move(condition));
      parts.push_back(take_word("else") ? expression() : constant(Value(Undefined{"the else that an if lacks"})));
      result = make(Kind::kChoice, line, std::move(parts));
    }
    return result;
  }

  Expression disjunction() {
    Expression left = conjunction();
    while (take_word("or")) left = with(Kind::kOr, std::move(left), conjunction());
    return left;
  }

  Expression conjunction() {
    Expression left = negation();
    while (take_word("and")) left = with(Kind::kAnd, std::move(left), negation());
    return left;
  }

  Expression negation() {
    const Nesting nesting(this);
    if (is_word("not")) {
      next();
      return with(Kind::kNot, negation());
    }
    return comparison();
  }

  std::string comparison_operator() {
    for (const std::string_view op : {"==", "!=", "<=", ">=", "<", ">"})
      if (take(op)) return std::string(op);
    if (take_word("in")) return "in";
    if (is_word("not") && after().kind == Token::Kind::kName && after().text == "in") {
      next();
      next();
      return "not in";
    }
    return {};
  }

  Expression comparison() {
    Expression first = sum();
    std::string op = comparison_operator();
    if (op.empty()) return first;
    const int line = first.line;
    std::vector<Expression> parts;
    std::vector<std::string> names;
    parts.push_back(std::move(first));
    for (; !op.empty(); op = comparison_operator()) {
      names.push_back(op);
      parts.push_back(sum());
    }
    Expression result = make(Kind::kCompare, line, std::move(parts));
    result.names = std::move(names);
    return result;
  }

  Expression sum() {
    Expression left = joined();
    for (;;) {
      if (take("+")) {
        left = with(Kind::kBinary, std::move(left), joined(), "+");
      } else if (take("-")) {
        left = with(Kind::kBinary, std::move(left), joined(), "-");
      } else {
        return left;
      }
    }
  }

  Expression joined() {
    Expression left = product();
    while (take("~")) left = with(Kind::kBinary, std::move(left), product(), "~");
    return left;
  }

  Expression product() {
    Expression left = power();
    for (;;) {
      std::string op;
      for (const std::string_view each : {"*", "//", "/", "%"})
        if (op.empty() && take(each)) op = each;
      if (op.empty()) return left;
      left = with(Kind::kBinary, std::move(left), power(), op);
    }
  }

  Expression power() {
    Expression left = unary(true);
    while (take("**")) left = with(Kind::kBinary, std::move(left), unary(true), "**");
    return left;
  }

  Expression unary(bool with_filters) {
    const Nesting nesting(this);
    Expression result;
    if (is("-") || is("+")) {
      const std::string op = now().text;
      next();
      result = with(Kind::kUnary, unary(false), op);
    } else {
      result = primary();
    }
    result = postfix(std::move(result));
    return with_filters ? filtered(std::move(result)) : result;
  }

  Expression primary() {
    const Token& token = now();
    Expression result;
    switch (token.kind) {
      case Token::Kind::kName:
        result = named_constant(token.text);
        next();
        return result;
      case Token::Kind::kString: {
        std::string text;
        const int line = token.line;
        for (; now().kind == Token::Kind::kString; next()) text += now().text;
        return {.kind = Kind::kConstant, .line = line, .constant = Value::own_text(std::move(text))};
      }
      case Token::Kind::kInteger:
      case Token::Kind::kReal:
        result = constant(number(token));
        next();
        return result;
      default:
        break;
    }
    if (take("(")) return in_brackets();
    if (take("[")) return list();
    if (take("{")) return dict();
    refuse("expected an expression, found {}", what());
  }

  Expression named_constant(const std::string& name) const {
    if (name == "true" || name == "True") return constant(Value::boolean(true));
    if (name == "false" || name == "False") return constant(Value::boolean(false));
    if (name == "none" || name == "None") return constant(Value::none());
    return {.kind = Kind::kName, .line = now().line, .name = name};
  }

  Value number(const Token& token) const {
    const char* end = token.text.data() + token.text.size();
    int64_t integer = 0;
    double real = 0;
    const auto [stop, error] = token.kind == Token::Kind::kInteger ? std::from_chars(token.text.data(), end, integer)
                                                                   : std::from_chars(token.text.data(), end, real);
    if (error != std::errc() || stop != end) refuse("the number {} is out of range", token.text);
    return token.kind == Token::Kind::kInteger ? Value::integer(integer) : Value::real(real);
  }

  Expression in_brackets() {
    const int line = now().line;
    if (take(")")) return make(Kind::kTuple, line, {});
    Expression result = tuple_or_one();
    expect(")");
    return result;
  }

  Expression list() {
    const int line = now().line;
    std::vector<Expression> parts;
    while (!is("]")) {
      parts.push_back(expression());
      if (!is("]")) expect(",");
    }
    next();
    return make(Kind::kList, line, std::move(parts));
  }

  Expression dict() {
    const int line = now().line;
    std::vector<Expression> parts;
    while (!is("}")) {
      parts.push_back(expression());
      expect(":");
      parts.push_back(expression());
      if (!is("}")) expect(",");
    }
    next();
    return make(Kind::kDict, line, std::move(parts));
  }

  Expression postfix(Expression left) {
    for (;;) {
      if (take(".")) {
        if (now().kind == Token::Kind::kInteger) {
          left = with(Kind::kSubscript, std::move(left), constant(number(now())));
          next();
        } else {
          left = with(Kind::kAttribute, std::move(left), expect_name());
        }
      } else if (take("[")) {
        left = subscript(std::move(left));
      } else if (is("(")) {
        left = call(std::move(left));
      } else {
        return left;
      }
    }
  }

  Expression subscript(Expression left) {
    const auto bound = [&] { return is(":") || is("]") ? constant(Value::none()) : expression(); };
    Expression first = bound();
    if (take("]")) {
      if (first.kind == Kind::kConstant && first.constant.is_none()) refuse("expected an index before \"]\"");
      return with(Kind::kSubscript, std::move(left), std::move(first));
    }
    const int line = left.line;
    std::vector<Expression> parts;
    parts.push_back(std::move(left));
    parts.push_back(std::move(first));
    expect(":");
    parts.push_back(bound());
    parts.push_back(take(":") ? bound() : constant(Value::none()));
    expect("]");
    return make(Kind::kSlice, line, std::move(parts));
  }

  // parts: `first`, then the arguments in brackets.
  Expression with_arguments(Kind kind, Expression first, std::string name = {}) {
    const int line = now().line;
    std::vector<Expression> parts;
    std::vector<std::string> keywords;
    parts.push_back(std::move(first));
    expect("(");
    while (!is(")")) {
      if (is("*") || is("**")) refuse("arguments by \"{}\" are not supported", now().text);
      if (now().kind == Token::Kind::kName && after().kind == Token::Kind::kOperator && after().text == "=") {
        keywords.push_back(expect_name());
        next();
      } else if (!keywords.empty()) {
        refuse("an argument without a name stands behind one with a name");
      }
      parts.push_back(expression());
      if (!is(")")) expect(",");
    }
    next();
    Expression result = make(kind, line, std::move(parts), std::move(name));
    result.keywords = std::move(keywords);
    return result;
  }

  Expression call(Expression left) { return with_arguments(Kind::kCall, std::move(left)); }

  Expression filtered(Expression left) {
    for (;;) {
      if (take("|")) {
        std::string name = expect_name();
        if (!is_filter(name)) refuse("the filter {} is not supported", name);
        left = is("(") ? with_arguments(Kind::kFilter, std::move(left), std::move(name))
                       : with(Kind::kFilter, std::move(left), std::move(name));
      } else if (take_word("is")) {
        left = test(std::move(left));
      } else if (is("(")) {
        left = call(std::move(left));
      } else {
        return left;
      }
    }
  }

  Expression test(Expression left) {
    const bool negated = take_word("not");
    std::string name = expect_name();
    if (!is_test(name)) refuse("the test {} is not supported", name);
    const bool bare = now().kind == Token::Kind::kString || now().kind == Token::Kind::kInteger ||
                      now().kind == Token::Kind::kReal || is("[") || is("{") ||
                      (now().kind == Token::Kind::kName && !ends_test(now().text));
    Expression result;
    if (is("(")) {
      result = with_arguments(Kind::kTest, std::move(left), std::move(name));
    } else if (bare) {
      result = with(Kind::kTest, std::move(left), postfix(primary()), std::move(name));
    } else {
      result = with(Kind::kTest, std::move(left), std::move(name));
    }
    return negated ? with(Kind::kNot, std::move(result)) : std::move(result);
  }

  static bool ends_test(std::string_view word) {
    return word == "else" || word == "or" || word == "and" || word == "if" || word == "is" || word == "in" ||
           word == "not" || word == "recursive";
  }

  const std::vector<Token> tokens_;
  const std::string& where_;
  size_t at_ = 0;
  int nesting_ = 0, loops_ = 0;
  bool in_macro_ = false;
};

}  // namespace

std::vector<Statement> parse(std::string_view source, const std::string& where) {
  return Parser(tokenize(source, where), where).run();
}

}  // namespace coprime::templates
