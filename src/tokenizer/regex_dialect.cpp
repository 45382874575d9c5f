// Oniguruma's Ruby dialect to PCRE2. Passed on: what both read alike. Rewritten: \s and \S (PCRE2 adds U+180E), \d,
// \uHHHH, scripts (PCRE2 would add script extensions). Refused: escapes, groups and quantifiers that mean something
// else there. Not the same, and accepted: under (?i:...) Oniguruma also matches one letter to several (ß to ss).
#include <algorithm>

#include "base/error.h"
#include "json/json.h"
#include "tokenizer/regex.h"

namespace coprime {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

class Translation {
 public:
  Translation(std::string_view pattern, const std::string& where) : in_(pattern), where_(where) {}

  std::string run() {
    while (at_ < in_.size()) {
      switch (in_[at_]) {
        case '\\':
          escape();
          break;
        case '[':
          char_class();
          break;
        case '(':
          group();
          break;
        case '{':
          braces();
          break;
        default:
          out_ += in_[at_++];
      }
    }
    return std::move(out_);
  }

 private:
  bool ahead(std::string_view text) const { return in_.substr(at_).starts_with(text); }

  void take(size_t count) {
    out_ += in_.substr(at_, count);
    at_ += count;
  }

  [[noreturn]] void refuse(size_t length, std::string_view why) const {
    fail(ErrorKind::kModel, "{}: the pattern's {} at byte {}: {}", where_, coprime::quoted(in_.substr(at_, length)),
         at_, why);
  }

  void escape() {
    const char c = at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
    if (c == 's' || c == 'S') {
      replace(2, c == 's' ? "\\p{White_Space}" : "\\P{White_Space}");
    } else if (c == 'd' || c == 'D') {
      replace(2, c == 'd' ? "\\p{Nd}" : "\\P{Nd}");
    } else if (c == 'p' || c == 'P') {
      property();
    } else if (c == 'u' && at_ + 6 <= in_.size() && std::all_of(in_.begin() + at_ + 2, in_.begin() + at_ + 6, is_hex)) {
      replace(6, "\\x{" + std::string(in_.substr(at_ + 2, 4)) + "}");
    } else if (c == 'x' && ahead("\\x{")) {
      take(3);
    } else if (c == 'r' || c == 'n' || c == 't' || c == 'f') {
      take(2);
    } else if (c == '\0' || is_letter(c) || is_digit(c)) {
      refuse(2, "escapes other than \\s \\S \\d \\D \\p{} \\P{} \\r \\n \\t \\f \\x{} \\uHHHH are not supported");
    } else {
      take(2);
    }
  }

  void replace(size_t length, std::string_view text) {
    out_ += text;
    at_ += length;
  }

  // One or two letters are a general category; longer names are scripts, a few apart.
  void property() {
    const size_t close = in_.find('}', at_);
    if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{' || close == std::string_view::npos) {
      refuse(2, "a property's name in braces must follow");
    }
    std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    if (name.empty() || !std::all_of(name.begin(), name.end(), [](char c) { return is_letter(c) || c == '_'; })) {
      refuse(close - at_ + 1, "this names no property");
    }
    out_ += in_.substr(at_, 3);
    if (negated) out_ += '^';
    if (name.size() > 2 && name != "Alphabetic" && name != "White_Space") out_ += "sc:";
    out_ += name;
    out_ += '}';
    at_ = close + 1;
  }

  void char_class() {
    take(1);
    if (ahead("^")) take(1);
    if (ahead("]")) refuse(1, "a class must not begin with ]");
    while (at_ < in_.size() && in_[at_] != ']') {
      if (in_[at_] == '[') refuse(1, "classes within classes are not supported; write \\[ for the bracket");
      if (ahead("&&")) refuse(2, "intersections of classes are not supported");
      if (in_[at_] == '\\') {
        escape();
      } else {
        take(1);
      }
    }
    if (at_ < in_.size()) take(1);
  }

  void group() {
    if (ahead("(*")) refuse(2, "this is not supported");
    if (!ahead("(?")) return take(1);
    for (const std::string_view opening : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"}) {
      if (ahead(opening)) return take(opening.size());
    }
    refuse(3, "groups other than (?: (?= (?! (?<= (?<! (?> (?i: are not supported");
  }

  // {n}, {n,}, {n,m}, without a sign after it: Ruby's {n}+ is not possessive and {n}? is not lazy. Other braces are
  // text.
  void braces() {
    size_t i = at_ + 1;
    while (i < in_.size() && (is_digit(in_[i]) || in_[i] == ',')) ++i;
    if (i == at_ + 1 || i == in_.size() || in_[i] != '}') return take(1);
    if (in_[at_ + 1] == ',') refuse(i - at_ + 1, "write the least count");
    if (i + 1 < in_.size() && (in_[i + 1] == '+' || in_[i + 1] == '?')) refuse(i - at_ + 2, "this is not supported");
    take(i - at_ + 1);
  }

  std::string_view in_;
  const std::string& where_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string pcre2_pattern(std::string_view oniguruma_pattern, const std::string& where) {
  return Translation(oniguruma_pattern, where).run();
}

}  // namespace coprime
