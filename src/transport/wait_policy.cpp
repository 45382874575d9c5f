#include "transport/wait_policy.h"

#include <algorithm>

namespace coprime {

WaitPolicy choose_wait_policy(int cores, int ranks, int threads_per_rank) {
  const int64_t threads = int64_t{ranks} * std::max(threads_per_rank, 1);
  if (threads <= cores) return {.spin_us = 50, .yield_us = 2000};
  return {.spin_us = 0, .yield_us = 500};
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(CPU_COUNT(&set), 1);
}

}  // namespace coprime
