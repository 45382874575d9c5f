#include "cli/prompt_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/clock.h"

namespace coprime {
namespace {

constexpr int64_t kQuietUs = 1'000'000;  // a shorter wait needs no line
constexpr int64_t kRefreshUs = 200'000;
constexpr const char* kClearLine = "\r\033[K";

}  // namespace

PromptProgress PromptProgress::on_terminal() {
  if (::isatty(STDERR_FILENO) == 0) return {nullptr, 0};
  return {[](const std::string& text) {
            std::fputs(text.c_str(), stderr);
            std::fflush(stderr);
          },
          now_us()};
}

void PromptProgress::read(int64_t tokens, int64_t of, int64_t time_us) {
  if (!write_) return;
  if (tokens >= of) {
    if (shown_) write_(kClearLine);
    shown_ = false;
    return;
  }
  if (time_us - begin_us_ < kQuietUs || (shown_ && time_us - shown_us_ < kRefreshUs)) return;
  const double left_s =
      static_cast<double>(time_us - begin_us_) * 1e-6 / static_cast<double>(tokens) * static_cast<double>(of - tokens);
  write_(fmt::format("{}reading the prompt: {} of {} tokens, {:.0f} s left", kClearLine, tokens, of, left_s));
  shown_ = true;
  shown_us_ = time_us;
}

}  // namespace coprime
