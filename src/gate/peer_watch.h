// Deadlines of one rank's waits, counted for each peer from the last time that its progress counter moved.
//
// Time is looked at only between sleeps: a wait that succeeds without sleeping costs nothing here. A rank that gives up
// settles on the progress page whom the world blames, and all ranks then name the same one, and who found it first.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "transport/progress_page.h"

namespace coprime {

// Why a wait ends without its bytes: "rank 0 <what> at layer 3 gate FFN (sequence 118) over shm: <why>".
struct Verdict {
  int blamed = 0;
  std::string what;  // "waited 5000 ms for rank 2"
  std::string why;   // "rank 2 is stopped, stuck or gone: ..."
};

class PeerWatch {
 public:
  PeerWatch(std::shared_ptr<const ProgressPage> page, int rank, int timeout_ms, uint32_t epoch);

  // This rank has come further.
  void advance() { page_->advance(rank_); }

  // The first sleep of a gate's wait begins; `missing` has a bit for each peer that is awaited.
  void begin(uint64_t sequence, uint32_t missing);
  void end();  // the wait is over

  // Between two sleeps of a wait. A verdict ends it. Of several that are late it blames one that does not itself wait
  // for another.
  std::optional<Verdict> check(uint32_t missing);

  // Whether another rank has given up.
  std::optional<Verdict> others_verdict() const;

  // This rank gives up, for what it found itself. What it must report: that, or what another rank found first.
  Verdict settle(const Verdict& found);
  int64_t sleep_us() const { return sleep_us_; }  // the longest sleep between two checks

 private:
  struct Seen {
    uint64_t counter = 0;
    int64_t moved_us = 0;
    int64_t gone_us = -1;  // when it was first seen to be gone
  };
  static Verdict told_by(const Culprit& culprit);
  int culprit_of(uint32_t late) const;

  std::shared_ptr<const ProgressPage> page_;
  int rank_;
  uint32_t epoch_;
  int64_t timeout_us_, sleep_us_;
  uint64_t sequence_ = 0;  // of the wait
  std::array<Seen, kMaxRanks> seen_ = {};
};

}  // namespace coprime
