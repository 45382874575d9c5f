#include "gate/peer_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/clock.h"

namespace coprime {
namespace {
constexpr int64_t kLongestSleepUs = 50'000;
}

PeerWatch::PeerWatch(std::shared_ptr<const ProgressPage> page, int rank, int timeout_ms)
    : page_(std::move(page)),
      rank_(rank),
      timeout_us_(int64_t{timeout_ms} * 1000),
      sleep_us_(std::clamp<int64_t>(timeout_us_ / 16, 1000, kLongestSleepUs)) {
  COPRIME_CHECK(timeout_ms > 0, "time-out of {} ms", timeout_ms);
}

void PeerWatch::begin(uint32_t missing) {
  const int64_t time_us = now_us();
  for (; missing != 0; missing &= missing - 1) {
    const int peer = std::countr_zero(missing);
    seen_[static_cast<size_t>(peer)] = {page_->counter(peer).load(std::memory_order_relaxed), time_us};
  }
}

std::optional<Verdict> PeerWatch::check(uint32_t missing) {
  if (std::optional<Verdict> verdict = others_verdict()) return verdict;
  const int64_t time_us = now_us();
  for (; missing != 0; missing &= missing - 1) {
    const int peer = std::countr_zero(missing);
    Seen& seen = seen_[static_cast<size_t>(peer)];
    const uint64_t counter = page_->counter(peer).load(std::memory_order_relaxed);
    if (counter != seen.counter) {
      seen = {counter, time_us};
    } else if (time_us - seen.moved_us >= timeout_us_) {
      return Verdict{
          peer, fmt::format("waited {} ms for rank {}", timeout_us_ / 1000, peer),
          fmt::format("rank {} is stopped, stuck or gone: see what it reports; for a slow one raise --gate-timeout-ms",
                      peer)};
    }
  }
  return std::nullopt;
}

std::optional<Verdict> PeerWatch::others_verdict() const {
  for (int peer = 0; peer < page_->ranks(); ++peer) {
    if (peer == rank_) continue;
    const std::optional<int> blamed = page_->blamed_by(peer);
    if (!blamed) continue;
    return Verdict{
        *blamed, "stopped waiting",
        fmt::format("rank {} gave up on rank {}: see what both report, and start the ranks again", peer, *blamed)};
  }
  return std::nullopt;
}

}  // namespace coprime
