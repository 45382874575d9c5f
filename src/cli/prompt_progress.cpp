#include "cli/prompt_progress.h"

#include <fmt/format.h>

namespace coprime {
namespace {

constexpr int64_t kQuietUs = 1'000'000;  // a shorter wait needs no line

}  // namespace

void PromptProgress::read(int64_t tokens, int64_t of, int64_t time_us) {
  if (tokens >= of) return line_.clear();
  const auto so_far_us = static_cast<double>(time_us - begin_us_);
  if (so_far_us < kQuietUs) return;
  const double left_s = so_far_us * 1e-6 / static_cast<double>(tokens) * static_cast<double>(of - tokens);
  line_.show(fmt::format("reading the prompt: {} of {} tokens, {:.0f} s left", tokens, of, left_s), time_us);
}

}  // namespace coprime
