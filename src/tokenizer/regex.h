// One compiled pattern of a tokenizer. The files' patterns are written for Oniguruma (Ruby's dialect);
// regex_dialect.cpp rewrites what PCRE2 would read differently and refuses what it cannot. A match that backtracks
// without end hits a limit and is an Error(kModel), never a hang.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace coprime {

// The same pattern for PCRE2 (UTF, UCP, multi-line). Error(kModel) names `where` and the construct that is not
// supported.
std::string pcre2_pattern(std::string_view oniguruma_pattern, const std::string& where);

// One caller's room for matching; any number of regexes may use it, one at a time.
class MatchRoom {
 public:
  MatchRoom();
  ~MatchRoom();
  MatchRoom(const MatchRoom&) = delete;
  MatchRoom& operator=(const MatchRoom&) = delete;

 private:
  friend class Regex;
  struct State;
  std::unique_ptr<State> state_;
};

class Regex {
 public:
  // Error(kModel) names `where`, the position and PCRE2's reason.
  Regex(std::string_view oniguruma_pattern, const std::string& where);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // The first match in valid UTF-8 text at or after `from`; what stands before it is visible to look-behind.
  // Thread-safe with one room a thread.
  bool find(std::string_view text, size_t from, MatchRoom* room, size_t* begin, size_t* end) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace coprime
