// How a rank waits for its peers: it spins while there are cores for all, else yields while nobody else wants its core,
// then sleeps.
//
// Spinning is for a world that has a core for every thread: the peer is running and its bytes are a microsecond away.
// Where ranks share cores, the peer may well be waiting for this very core, so that every spin delays what it waits
// for: there, a rank offers the core to others again and again. A sched_yield() that returns at once tells that nobody
// wants it, and staying awake saves a wake-up; one that takes its time has let others run, and sleeping at the next one
// is fairer than asking the scheduler again, which counts a yield as if the whole slice had been used.
#pragma once

#include <sched.h>

#include <cstdint>
#include <utility>

#include "base/clock.h"

namespace coprime {

struct WaitPolicy {
  int64_t spin_us = 0;   // poll with the core held, at most so long
  int64_t yield_us = 0;  // then poll and yield, at most so long, and while the yields return at once
};

// Pure. `cores` are those that all the ranks share, `ranks` those of them on this host.
WaitPolicy choose_wait_policy(int cores, int ranks, int threads_per_rank);

// How many threads of this process can run at once (transport/host_cores.h).
int usable_cores();

// Tells the core that this is a spin loop.
inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// A yield that took longer than this has let another thread run.
inline constexpr int64_t kSharedCoreUs = 10;

// Calls ready() until it returns true: after a pause while the policy spins, after a sched_yield() while it yields,
// then after each call of sleep(), which may block and may throw.
template <class Ready, class Sleep>
void wait_until(const WaitPolicy& policy, Ready&& ready, Sleep&& sleep) {
  if (ready()) return;
  if (policy.spin_us > 0) {
    const int64_t end_us = now_us() + policy.spin_us;
    do {
      for (int i = 0; i < 16; ++i) {
        cpu_relax();
        if (ready()) return;
      }
    } while (now_us() < end_us);
  }
  if (policy.yield_us > 0) {
    int64_t time_us = now_us();
    const int64_t end_us = time_us + policy.yield_us;
    while (time_us < end_us) {
      ::sched_yield();
      if (ready()) return;
      const int64_t before_us = std::exchange(time_us, now_us());
      if (time_us - before_us > kSharedCoreUs) break;
    }
  }
  do sleep();
  while (!ready());
}

}  // namespace coprime
