#include "template/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace coprime::templates {
namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// One kind of line end, and without the last one, as Jinja reads a source.
std::string with_unix_lines(std::string_view source) {
  std::string result;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') continue;
      result += '\n';
    } else {
      result += source[i];
    }
  }
  if (result.ends_with('\n')) result.pop_back();
  return result;
}

class Lexer {
 public:
  Lexer(std::string source, const std::string& where) : source_(std::move(source)), where_(where) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) outside();
    add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::kModel, "{}, line {}: {}", where_, line_, fmt::format(format, std::forward<Args>(args)...));
  }

  void add(Token::Kind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }

  std::string_view rest() const { return std::string_view(source_).substr(at_); }

  void move(size_t count) {
    line_ += static_cast<int>(std::ranges::count(rest().substr(0, count), '\n'));
    at_ += count;
    line_begins_ = at_ > 0 && source_[at_ - 1] == '\n';
  }

  // Text up to the next tag, and the tag.
  void outside() {
    size_t tag = at_;
    for (; (tag = source_.find('{', tag)) != source_.npos; ++tag) {
      if (tag + 1 < source_.size() && std::string_view("{%#").find(source_[tag + 1]) != std::string_view::npos) break;
    }
    if (tag == source_.npos) tag = source_.size();
    std::string text = source_.substr(at_, tag - at_);
    if (tag == source_.size()) {
      give_text(std::move(text));
      return move(tag - at_);
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    if (sign == '-') {
      for (size_t begin = 0; !text.empty() && is_white_space(previous_code_point(text, text.size(), &begin));)
        text.resize(begin);
    } else if (sign != '+' && kind != '{') {
      const size_t line = text.rfind('\n') + 1;
      const bool blank = std::all_of(text.begin() + static_cast<ptrdiff_t>(line), text.end(), is_space);
      if (blank && (line > 0 || line_begins_)) text.resize(line);
    }
    give_text(std::move(text));
    move(tag - at_);
    if (kind == '#') return comment();
    add(kind == '{' ? Token::Kind::kPrintBegin : Token::Kind::kTagBegin, "");
    move(sign == '-' || (sign == '+' && kind == '%') ? 3 : 2);
    inside(kind == '{' ? "}}" : "%}");
  }

  void give_text(std::string text) {
    if (!text.empty()) add(Token::Kind::kText, std::move(text));
  }

  void comment() {
    const size_t end = source_.find("#}", at_ + 2);
    if (end == source_.npos) refuse("this comment has no end: close it with #}}");
    const char sign = source_[end - 1];
    move(end + 2 - at_);
    after_tag(sign, true);
  }

  // The white space that a tag takes along.
  void after_tag(char sign, bool trims_line) {
    size_t count = 0;
    if (sign == '-') {
      for (size_t next = at_; next < source_.size() && is_white_space(next_code_point(source_, &next));)
        count = next - at_;
    } else if (trims_line && sign != '+' && rest().starts_with('\n')) {
      count = 1;
    }
    move(count);
  }

  bool at_end(std::string_view end, char* sign) const {
    const std::string_view left = rest();
    *sign = ' ';
    if (left.starts_with(end)) return true;
    *sign = left[0];
    return (left[0] == '-' || (left[0] == '+' && end == "%}")) && left.substr(1).starts_with(end);
  }

  void inside(std::string_view end) {
    const int begin = line_;
    std::string open;  // brackets
    while (at_ < source_.size()) {
      if (is_space(source_[at_])) {
        move(1);
        continue;
      }
      char sign;
      if (open.empty() && at_end(end, &sign)) {
        add(end == "}}" ? Token::Kind::kPrintEnd : Token::Kind::kTagEnd, "");
        move(sign == ' ' ? 2 : 3);
        return after_tag(sign, end == "%}");
      }
      word(&open);
    }
    line_ = begin;
    refuse("this {} has no end: close it with {}", end == "}}" ? "{{" : "{%", end);
  }

  void word(std::string* open) {
    const char c = source_[at_];
    if (c == '"' || c == '\'') return string(c);
    if (is_digit(c)) return number();
    if (is_letter(c)) {
      size_t count = 1;
      while (at_ + count < source_.size() && (is_letter(source_[at_ + count]) || is_digit(source_[at_ + count])))
        ++count;
      add(Token::Kind::kName, source_.substr(at_, count));
      return move(count);
    }
    static constexpr auto kOperators =
        std::to_array<std::string_view>({"//", "**", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<",
                                         ">",  "=",  ".",  ",",  ":",  "|",  "(", ")", "[", "]", "{", "}"});
    for (const std::string_view text : kOperators) {
      if (!rest().starts_with(text)) continue;
      bracket(text[0], open);
      add(Token::Kind::kOperator, std::string(text));
      return move(text.size());
    }
    refuse("{:?} stands in no supported construct", rest().substr(0, 1));
  }

  void bracket(char c, std::string* open) const {
    static constexpr std::string_view kOpen = "([{", kClose = ")]}";
    if (const size_t at = kOpen.find(c); at != kOpen.npos) *open += kClose[at];
    if (kClose.find(c) == kClose.npos) return;
    if (open->empty() || open->back() != c) refuse("\"{}\" closes nothing that is open", c);
    open->pop_back();
  }

  void number() {
    size_t count = 0;
    bool real = false;
    const auto peek = [&](size_t i) { return at_ + i < source_.size() ? source_[at_ + i] : ' '; };
    const auto digits = [&] {
      while (is_digit(peek(count)) || (peek(count) == '_' && is_digit(peek(count + 1)))) ++count;
    };
    digits();
    if (peek(count) == '.' && is_digit(peek(count + 1))) {
      real = true;
      ++count;
      digits();
    }
    if (peek(count) == 'e' || peek(count) == 'E') {
      const size_t sign = peek(count + 1) == '+' || peek(count + 1) == '-' ? 2 : 1;
      if (is_digit(peek(count + sign))) {
        real = true;
        count += sign;
        digits();
      }
    }
    if (is_letter(peek(count))) refuse("{:?} is no number", rest().substr(0, count + 1));
    std::string text = source_.substr(at_, count);
    std::erase(text, '_');
    add(real ? Token::Kind::kReal : Token::Kind::kInteger, text);
    move(count);
  }

  void string(char quote) {
    std::string value;
    size_t i = at_ + 1;
    while (i < source_.size() && source_[i] != quote) {
      if (source_[i] == '\\') {
        i = escape(i + 1, &value);
      } else {
        value += source_[i++];
      }
    }
    if (i >= source_.size()) refuse("this string has no end: close it with {}", quote);
    add(Token::Kind::kString, std::move(value));
    move(i + 1 - at_);
  }

  // Of Python's strings; `i` is behind the backslash. Returns where the string goes on.
  size_t escape(size_t i, std::string* value) const {
    static constexpr std::string_view kLetters = "ntrabfv\\'\"", kMeanings = "\n\t\r\a\b\f\v\\'\"";
    const char c = i < source_.size() ? source_[i] : ' ';
    if (const size_t at = kLetters.find(c); at != kLetters.npos) {
      *value += kMeanings[at];
      return i + 1;
    }
    if (c == '\n') return i + 1;
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (c == 'N' || is_digit(c)) refuse("the escape \\{} is not supported: write the character, or \\uXXXX", c);
    if (digits == 0) {  // an escape that is none stays as it is
      *value += '\\';
      return i;
    }
    uint32_t point = 0;
    const char* begin = source_.data() + i + 1;
    const char* end = begin + std::min(digits, source_.size() - i - 1);
    const auto [stop, error] = std::from_chars(begin, end, point, 16);
    if (error != std::errc() || stop != begin + digits || point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
      refuse("the escape \\{} needs {} digits of a code point", c, digits);
    append_utf8(point, value);
    return i + 1 + digits;
  }

  const std::string source_;
  const std::string& where_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_begins_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const std::string& where) {
  if (source.size() > kMaxSourceBytes)
    fail(ErrorKind::kModel, "{}: a chat template of {} bytes; at most {} are read", where, source.size(),
         kMaxSourceBytes);
  if (const size_t bad = find_invalid_utf8(source); bad != source.npos)
    fail(ErrorKind::kModel, "{}: the chat template is not UTF-8: byte {} is 0x{:02x}", where, bad,
         static_cast<unsigned char>(source[bad]));
  return Lexer(with_unix_lines(source), where).run();
}

}  // namespace coprime::templates
