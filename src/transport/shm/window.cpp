// Sleeping and waking. A gate is over for all ranks at once, when the last one publishes: that one rings the bell, and
// one call wakes all sleepers.
//
//   sleeper r, for sequence s                       publisher p of sequence s
//   (1) v = rings                                   (a) published[p] = s              seq_cst
//   (2) set bit r of sleepers        seq_cst        (b) published[q] >= s for all q?  seq_cst   if not: done
//   (3) published[q] >= s for all q? seq_cst        (c) sleepers = 0, and were there any?  seq_cst   if not: done
//       if so: done                                 (d) rings += 1
//   (4) futex wait while rings == v                 (e) wake all that wait on rings
//   (5) clear bit r of sleepers
//
// No wake-up is lost. Let p be the rank whose store (a) of s is the last of all in the one order of seq_cst operations:
// its (b) is true. If r's (2) comes before p's (c) in that order, p sees the bit, or another rank at (c) took it;
// whoever took it goes on to (d), which comes after r's load (1), since (1) is before (2) in r and the bit was read at
// (c): then v is old by the time of (4), or r sleeps already and (e) wakes it. If r's (2) comes after p's (c), r's (3)
// comes after p's (a) and after all others: r sees that all is there and does not sleep.
//
// A wake-up may be early: several ranks may find (b) true, and one of them, late, may take the bit of a rank that
// sleeps for s + 1 already. By the same argument that rank's v is old, so that it wakes, looks again and sleeps anew
// with its bit set.
#include "transport/shm/window.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <limits>

#include "base/check.h"

namespace coprime {
namespace {

// The word lies in shared memory: no FUTEX_PRIVATE_FLAG.
void futex_wait(std::atomic<uint32_t>& word, uint32_t value, int64_t timeout_us) {
  const timespec timeout = {.tv_sec = timeout_us / 1'000'000, .tv_nsec = timeout_us % 1'000'000 * 1000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &timeout, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

}  // namespace

Window::Window(std::shared_ptr<const ShmRegion> region, int rank)
    : region_(std::move(region)), rank_(rank), slot_bytes_(region_->slot_bytes()) {
  COPRIME_CHECK(rank >= 0 && rank < region_->ranks(), "rank {} of {}", rank, region_->ranks());
}

bool Window::all_published(uint64_t sequence) const {
  for (int rank = 0; rank < ranks(); ++rank) {
    if (region_->control(rank).published.load(std::memory_order_seq_cst) < sequence) return false;
  }
  return true;
}

void Window::publish(uint64_t sequence) {
  region_->control(rank_).published.store(sequence, std::memory_order_seq_cst);
  if (all_published(sequence)) ring();
}

void Window::ring() {
  ShmRegion::Bell& bell = region_->bell();
  if (bell.sleepers.load(std::memory_order_seq_cst) == 0) return;
  if (bell.sleepers.exchange(0, std::memory_order_seq_cst) == 0) return;
  bell.rings.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(bell.rings);
}

void Window::sleep(uint64_t sequence, int64_t timeout_us) {
  ShmRegion::Bell& bell = region_->bell();
  const uint32_t mine = 1u << rank_, rings = bell.rings.load(std::memory_order_seq_cst);
  bell.sleepers.fetch_or(mine, std::memory_order_seq_cst);
  if (!all_published(sequence)) futex_wait(bell.rings, rings, timeout_us);
  bell.sleepers.fetch_and(~mine, std::memory_order_seq_cst);
}

}  // namespace coprime
