#include "cli/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/clock.h"

namespace coprime {
namespace {

constexpr int64_t kRefreshUs = 200'000;
constexpr const char* kClearLine = "\r\033[K";

}  // namespace

void ProgressLine::show(const std::string& text, int64_t time_us) {
  if (!write_ || (shown_ && time_us - shown_us_ < kRefreshUs)) return;
  write_(kClearLine + text);
  shown_ = true;
  shown_us_ = time_us;
}

void ProgressLine::clear() {
  if (shown_) write_(kClearLine);
  shown_ = false;
}

ProgressLine::Write terminal_write() {
  if (::isatty(STDERR_FILENO) == 0) return nullptr;
  return [](const std::string& text) {
    std::fputs(text.c_str(), stderr);
    std::fflush(stderr);
  };
}

void show_percent(ProgressLine& line, uint64_t done, uint64_t total) {
  line.show(fmt::format("{} %", total == 0 ? 100 : done * 100 / total), now_us());
}

}  // namespace coprime
