// Cuts a text into the pieces that byte-pair encoding may not cross.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/regex.h"
#include "tokenizer/tokenizer_spec.h"

namespace coprime {

class PreTokenizer {
 public:
  PreTokenizer(const std::vector<PreTokenizerStep>& steps, const std::string& where);

  // Calls `sink` for each non-empty piece of valid UTF-8 text, in order; the piece lives during the call.
  using Sink = std::function<void(std::string_view)>;
  void split(std::string_view text, MatchRoom* room, const Sink& sink) const { step(0, text, room, sink); }

 private:
  struct Step {
    PreTokenizerStep::Kind kind;
    std::vector<Regex> pattern;  // one, or none
  };

  void step(size_t index, std::string_view text, MatchRoom* room, const Sink& sink) const;
  void by_pattern(size_t index, std::string_view text, MatchRoom* room, const Sink& sink) const;
  void by_digits(size_t index, std::string_view text, MatchRoom* room, const Sink& sink) const;

  std::vector<Step> steps_;
};

}  // namespace coprime
