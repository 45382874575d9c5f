// A line on a terminal while a long prompt is read: "reading the prompt: 512 of 4096 tokens, 12 s left". Written over
// itself, and gone before the text begins. Nothing where no person looks, and nothing of a prompt that is soon read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace coprime {

class PromptProgress {
 public:
  using Write = std::function<void(const std::string&)>;

  // `write` takes text for the terminal; empty: there is none. `begin_us`: when reading begins.
  PromptProgress(Write write, int64_t begin_us) : write_(std::move(write)), begin_us_(begin_us) {}
  // For standard error.
  static PromptProgress on_terminal();

  // So many of the prompt's tokens have been read by `time_us`. The line goes with the last.
  void read(int64_t tokens, int64_t of, int64_t time_us);

 private:
  Write write_;
  int64_t begin_us_, shown_us_ = 0;
  bool shown_ = false;
};

}  // namespace coprime
