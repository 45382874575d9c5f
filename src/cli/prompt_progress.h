// A line on a terminal while a long prompt is read: "reading the prompt: 512 of 4096 tokens, 12 s left". Gone before
// the text begins. Nothing of a prompt that is soon read.
#pragma once

#include "cli/progress_line.h"

namespace coprime {

class PromptProgress {
 public:
  // `begin_us`: when reading begins.
  PromptProgress(ProgressLine::Write write, int64_t begin_us) : line_(std::move(write)), begin_us_(begin_us) {}

  // So many of the prompt's tokens have been read by `time_us`. The line goes with the last.
  void read(int64_t tokens, int64_t of, int64_t time_us);

 private:
  ProgressLine line_;
  int64_t begin_us_;
};

}  // namespace coprime
