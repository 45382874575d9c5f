// Counts a device's finished work: every operation, and parts of the long ones, so that a rank that computes for
// seconds is seen to move. Counted is only what is done, never a poll or a wait. Any thread of the device may count.
#pragma once

#include <atomic>
#include <cstdint>

namespace coprime {

class WorkCounter {
 public:
  explicit WorkCounter(std::atomic<uint64_t>* count) : count_(count) {}  // null: nobody looks
  void add() const {
    if (count_ != nullptr) count_->fetch_add(1, std::memory_order_relaxed);
  }

 private:
  std::atomic<uint64_t>* count_;
};

}  // namespace coprime
