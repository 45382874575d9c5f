#include "tokenizer/pre_tokenizer.h"

#include <utf8proc.h>

#include "tokenizer/utf8.h"

namespace coprime {
namespace {

// Rust's char::is_numeric: the general categories Nd, Nl and No.
bool is_numeric(uint32_t code_point) {
  if (code_point < 0x80) return code_point >= '0' && code_point <= '9';
  const utf8proc_category_t category = utf8proc_category(static_cast<int32_t>(code_point));
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
}

}  // namespace

PreTokenizer::PreTokenizer(const std::vector<PreTokenizerStep>& steps, const std::string& where) {
  for (const PreTokenizerStep& from : steps) {
    Step& to = steps_.emplace_back(Step{from.kind, {}});
    if (from.kind == PreTokenizerStep::Kind::kSplit) to.pattern.emplace_back(from.pattern, where + ".pre_tokenizer");
  }
}

void PreTokenizer::step(size_t index, std::string_view text, MatchRoom* room, const Sink& sink) const {
  if (text.empty()) return;
  if (index == steps_.size()) return sink(text);
  switch (steps_[index].kind) {
    case PreTokenizerStep::Kind::kSplit:
      return by_pattern(index, text, room, sink);
    case PreTokenizerStep::Kind::kDigits:
    case PreTokenizerStep::Kind::kEachDigit:
      return by_digits(index, text, room, sink);
    case PreTokenizerStep::Kind::kSpaceInFront:
      if (text[0] == ' ') return step(index + 1, text, room, sink);
      return step(index + 1, " " + std::string(text), room, sink);
  }
}

void PreTokenizer::by_pattern(size_t index, std::string_view text, MatchRoom* room, const Sink& sink) const {
  const Regex& pattern = steps_[index].pattern[0];
  size_t done = 0, begin = 0, end = 0;
  for (size_t from = 0; from < text.size() && pattern.find(text, from, room, &begin, &end);) {
    step(index + 1, text.substr(done, begin - done), room, sink);
    step(index + 1, text.substr(begin, end - begin), room, sink);
    done = from = end;
    if (begin == end && from < text.size()) next_code_point(text, &from);  // an empty match only cuts
  }
  step(index + 1, text.substr(done), room, sink);
}

void PreTokenizer::by_digits(size_t index, std::string_view text, MatchRoom* room, const Sink& sink) const {
  const bool each = steps_[index].kind == PreTokenizerStep::Kind::kEachDigit;
  size_t done = 0;
  bool last_numeric = false;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const bool numeric = is_numeric(next_code_point(text, &at));
    if (numeric != last_numeric || (numeric && each)) {
      step(index + 1, text.substr(done, begin - done), room, sink);
      done = begin;
    }
    last_numeric = numeric;
  }
  step(index + 1, text.substr(done), room, sink);
}

}  // namespace coprime
