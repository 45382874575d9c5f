// A template's source as tokens: text, and the words within {{ }} and {% %}. White space around tags goes as Jinja
// takes it with trim_blocks and lstrip_blocks; comments vanish.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace coprime::templates {

struct Token {
  enum class Kind {
    kText,
    kPrintBegin,
    kPrintEnd,
    kTagBegin,
    kTagEnd,
    kName,
    kString,
    kInteger,
    kReal,
    kOperator,
    kEnd
  };
  Kind kind = Kind::kEnd;
  int line = 0;
  std::string text;  // of a string: its value
};

// At most this much source.
constexpr size_t kMaxSourceBytes = 1 << 20;

// Error(kModel) with `where` and the line.
std::vector<Token> tokenize(std::string_view source, const std::string& where);

}  // namespace coprime::templates
