#include "collective/rank_board.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"

namespace coprime {

void RankBoard::finish_round() {
  window_.publish(++sequence_);
  const int64_t end_us = now_us() + int64_t{1000} * timeout_ms_;
  std::vector<int> missing;
  while (true) {
    missing.clear();
    for (int peer = 0; peer < ranks(); ++peer) {
      if (!window_.seen(peer, sequence_)) missing.push_back(peer);
    }
    if (missing.empty()) return;
    const int64_t left_us = end_us - now_us();
    if (left_us <= 0) break;
    window_.sleep(sequence_, std::min<int64_t>(left_us, 50'000));
  }
  fail(ErrorKind::kLink,
       "rank {} waited {} ms for rank{} {} to say where its GPU memory is: look at what that rank says", rank(),
       timeout_ms_, missing.size() == 1 ? "" : "s", fmt::join(missing, ", "));
}

}  // namespace coprime
