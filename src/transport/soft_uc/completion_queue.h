// The completions of one pair in the order in which they came about, as a device tells them: a queue that is full loses
// what comes next, and some are told twice, falsely or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "transport/soft_uc/options.h"

namespace coprime {

class SoftCompletionQueue {
 public:
  explicit SoftCompletionQueue(const SoftUcOptions& options);

  struct Entry {
    Completion completion;
    size_t frames = 0;  // that its queue gets back when it is told
  };

  // `newest_id` is that of the newest request in the completed one's queue. False: the completion is lost.
  bool push(const Entry& entry, uint64_t newest_id);

  bool empty() const { return entries_.empty(); }
  Entry pop();

 private:
  size_t holds_;
  std::vector<SoftUcFault> faults_;  // of completions
  uint64_t seen_[2] = {0, 0};        // completions by kind
  std::deque<Entry> entries_;
};

}  // namespace coprime
