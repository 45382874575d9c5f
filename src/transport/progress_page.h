// One cache line a rank, shared by all ranks of a world on one host, whatever link joins them: how far the rank has
// come, and whether it gave up. A peer's deadline counts from the last time that its counter moved, so that a slow rank
// is no dead rank.
//
// The front creates it; ranks attach by descriptor, or share the object when they are threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/limits.h"
#include "transport/shared_memory.h"

namespace coprime {

class ProgressPage {
 public:
  static ProgressPage create(int ranks);
  static ProgressPage attach(UniqueFd fd);  // Error(kLink) when the descriptor is no progress page

  int fd() const { return memory_.fd(); }
  int ranks() const;

  // Counts up at every operation of the rank's device and at every gate. Only the rank itself writes it; relaxed order
  // does, since nobody reads anything else on the strength of it.
  std::atomic<uint64_t>& counter(int rank) const { return line(rank).counter; }
  void advance(int rank) const {  // the single writer needs no read-modify-write
    std::atomic<uint64_t>& count = counter(rank);
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  // A rank that stops at a gate says so here, with the peer that it blames (itself when it has another reason), so that
  // the others need not wait for their own deadlines and blame the same. Only the rank itself writes it, once.
  void give_up(int rank, int blamed) const;
  std::optional<int> blamed_by(int rank) const;

 private:
  struct alignas(128) Line {
    std::atomic<uint64_t> counter;
    std::atomic<uint32_t> verdict;  // 0: going on; else 1 + the blamed rank
  };
  struct Header;
  static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

  explicit ProgressPage(SharedMemory memory) : memory_(std::move(memory)) {}
  Line& line(int rank) const;

  SharedMemory memory_;
};

}  // namespace coprime
