#include "engine/stop_matcher.h"

#include <algorithm>

namespace coprime {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string StopMatcher::push(std::string_view text) {
  if (stopped_) return {};
  withheld_ += text;
  // The string that is complete first wins, so that nothing depends on the pieces.
  size_t first_end = std::string::npos, match = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = withheld_.find(stop);
    if (at == std::string::npos || at + stop.size() > first_end || (at + stop.size() == first_end && at > match))
      continue;
    match = at;
    first_end = at + stop.size();
  }
  if (match != std::string::npos) {
    stopped_ = true;
    return std::exchange(withheld_, {}).substr(0, match);
  }
  size_t keep = 0;  // the longest end that begins a stop string
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, withheld_.size()); length > keep; --length) {
      if (withheld_.ends_with(std::string_view(stop).substr(0, length))) keep = length;
    }
  }
  std::string given = withheld_.substr(0, withheld_.size() - keep);
  withheld_.erase(0, given.size());
  return given;
}

std::string StopMatcher::finish() { return stopped_ ? std::string() : std::exchange(withheld_, {}); }

}  // namespace coprime
