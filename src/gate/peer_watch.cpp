#include "gate/peer_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/clock.h"

namespace coprime {
namespace {
// With the time for a verdict to come back from the front (ProgressPage::kSettleUs) within 100 ms of a deadline.
constexpr int64_t kLongestSleepUs = 15'000;
// A rank that leaves when it has sent all may be seen to be gone before its last bytes are here.
constexpr int64_t kLastBytesUs = 50'000;
}  // namespace

PeerWatch::PeerWatch(std::shared_ptr<const ProgressPage> page, int rank, int timeout_ms, uint32_t epoch)
    : page_(std::move(page)),
      rank_(rank),
      epoch_(epoch),
      timeout_us_(int64_t{timeout_ms} * 1000),
      sleep_us_(std::clamp<int64_t>(timeout_us_ / 16, 1000, kLongestSleepUs)) {
  COPRIME_CHECK(timeout_ms > 0, "time-out of {} ms", timeout_ms);
}

void PeerWatch::begin(uint64_t sequence, uint32_t missing) {
  sequence_ = sequence;
  page_->set_waiting(rank_, {sequence, missing});
  const int64_t time_us = now_us();
  for (; missing != 0; missing &= missing - 1) {
    const int peer = std::countr_zero(missing);
    seen_[static_cast<size_t>(peer)] = {page_->counter(peer).load(std::memory_order_relaxed), time_us, -1};
  }
}

void PeerWatch::end() { page_->set_waiting(rank_, {}); }

std::optional<Verdict> PeerWatch::check(uint32_t missing) {
  if (std::optional<Verdict> verdict = others_verdict()) return verdict;
  page_->set_waiting(rank_, {sequence_, missing});
  const int64_t time_us = now_us();
  uint32_t late = 0;
  for (; missing != 0; missing &= missing - 1) {
    const int peer = std::countr_zero(missing);
    Seen& seen = seen_[static_cast<size_t>(peer)];
    const uint64_t counter = page_->counter(peer).load(std::memory_order_relaxed);
    if (counter != seen.counter) {
      seen = {counter, time_us, -1};
    } else if (page_->is_gone(peer) && seen.gone_us < 0) {
      seen.gone_us = time_us;
    } else if (seen.gone_us >= 0 && time_us - seen.gone_us >= kLastBytesUs) {
      return Verdict{peer, fmt::format("lost rank {}", peer),
                     fmt::format("rank {} has ended, or its connection has: see what it reports, and start the ranks "
                                 "again",
                                 peer)};
    } else if (time_us - seen.moved_us >= timeout_us_) {
      late |= 1u << peer;
    }
  }
  if (late == 0) return std::nullopt;
  const int peer = culprit_of(late);
  return Verdict{
      peer, fmt::format("waited {} ms for rank {}", timeout_us_ / 1000, peer),
      fmt::format("rank {} is stopped, stuck or gone: see what it reports; for a slow one raise --gate-timeout-ms",
                  peer)};
}

// A rank that waits for nobody is stopped or stuck where it computes or sends. One that still waits for what this rank
// has sent long ago is stopped, or cut off. Any other that is behind waits for a rank that is late as well.
int PeerWatch::culprit_of(uint32_t late) const {
  int culprit = std::countr_zero(late), least_innocent = 4;
  for (uint32_t rest = late; rest != 0; rest &= rest - 1) {
    const int peer = std::countr_zero(rest);
    const ProgressPage::Waiting waiting = page_->waiting(peer);
    const bool behind = waiting.sequence < sequence_;
    const int innocence = waiting.peers == 0                            ? 0
                          : behind && (waiting.peers >> rank_ & 1) != 0 ? 1
                          : !behind || (waiting.peers & late) == 0      ? 2
                                                                        : 3;
    if (innocence < least_innocent) culprit = peer, least_innocent = innocence;
  }
  return culprit;
}

std::optional<Verdict> PeerWatch::others_verdict() const {
  const std::optional<Culprit> culprit = page_->verdict(epoch_);
  if (!culprit || culprit->origin == rank_) return std::nullopt;
  return told_by(*culprit);
}

Verdict PeerWatch::settle(const Verdict& found) {
  const Culprit culprit = page_->settle(epoch_, rank_, found.blamed);
  return culprit.origin == rank_ ? found : told_by(culprit);
}

Verdict PeerWatch::told_by(const Culprit& culprit) {
  const auto [origin, blamed] = culprit;
  if (origin == blamed) {
    return {blamed, "stopped waiting",
            fmt::format("rank {} gave up for a reason of its own: see what it reports", origin)};
  }
  return {
      blamed, "stopped waiting",
      fmt::format("rank {} gave up on rank {} first: see what both report, and start the ranks again", origin, blamed)};
}

}  // namespace coprime
