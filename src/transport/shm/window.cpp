// Sleeping and waking. A rank's word `awaited` has one bit for each peer that it sleeps for, and is also the futex
// word:
//
//   sleeper r, for sequence s                          publisher p of sequence t
//   (1) awaited[r] = missing              seq_cst      (a) published[p] = t                          seq_cst
//   (2) for each p missing: published[p]? seq_cst      (b) if awaited[r] has bit p                   seq_cst
//       clear the bits of those there                  (c)   clear bit p; if that made it 0, wake r
//   (3) if awaited[r] != 0: futex wait on that value
//   (4) awaited[r] = 0
//
// No wake-up is lost. Let r sleep in (3), with bit p still set at (2). Then r's load (2) came before p's store (a) of s
// in the one order of all seq_cst operations, so that r's store (1) comes before p's load (b) after it: p sees its bit,
// unless it is cleared already. Only p itself and ring_all() clear bit p from outside, so every bit that is set at (3)
// is cleared by the time that its peer has published s and gone through (c); whoever clears the last one wakes r, or
// changes the word before r's futex call looks at it, which then does not sleep.
//
// A wake-up may be early: p may come to (c) for sequence t = s - 1 when r, who has seen s - 1 by itself, sleeps for s
// already, and clear a bit that p will not clear again. That only brings the wake-up forward, as r wakes when the last
// bit goes: it looks at `published` again, and arms for those that are still missing. So one sleep costs one wake-up,
// by the last peer, and not one for each peer.
#include "transport/shm/window.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace coprime {
namespace {

// The word lies in shared memory: no FUTEX_PRIVATE_FLAG.
void futex_wait(std::atomic<uint32_t>& word, uint32_t value, int64_t timeout_us) {
  const timespec timeout = {.tv_sec = timeout_us / 1'000'000, .tv_nsec = timeout_us % 1'000'000 * 1000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &timeout, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word) { ::syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0); }

}  // namespace

Window::Window(std::shared_ptr<const ShmRegion> region, int rank)
    : region_(std::move(region)), rank_(rank), slot_bytes_(region_->slot_bytes()) {
  COPRIME_CHECK(rank >= 0 && rank < region_->ranks(), "rank {} of {}", rank, region_->ranks());
}

void Window::publish(uint64_t sequence) {
  region_->control(rank_).published.store(sequence, std::memory_order_seq_cst);
  const uint32_t mine = 1u << rank_;
  for (int peer = 0; peer < ranks(); ++peer) {
    std::atomic<uint32_t>& awaited = region_->control(peer).awaited;
    if ((awaited.load(std::memory_order_seq_cst) & mine) == 0) continue;
    if (awaited.fetch_and(~mine, std::memory_order_seq_cst) == mine) futex_wake(awaited);
  }
}

void Window::sleep(uint64_t sequence, uint32_t missing, int64_t timeout_us) {
  std::atomic<uint32_t>& awaited = region_->control(rank_).awaited;
  awaited.store(missing, std::memory_order_seq_cst);
  uint32_t absent = 0;
  for (uint32_t rest = missing; rest != 0; rest &= rest - 1) {
    const int peer = std::countr_zero(rest);
    if (region_->control(peer).published.load(std::memory_order_seq_cst) < sequence) absent |= 1u << peer;
  }
  uint32_t value = awaited.load(std::memory_order_seq_cst);
  if (absent != missing) value = awaited.fetch_and(absent, std::memory_order_seq_cst) & absent;
  if (value != 0) futex_wait(awaited, value, timeout_us);
  awaited.store(0, std::memory_order_relaxed);
}

void Window::ring_all() {
  for (int peer = 0; peer < ranks(); ++peer) {
    std::atomic<uint32_t>& awaited = region_->control(peer).awaited;
    if (peer != rank_ && awaited.exchange(0, std::memory_order_seq_cst) != 0) futex_wake(awaited);
  }
}

}  // namespace coprime
