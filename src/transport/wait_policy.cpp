#include "transport/wait_policy.h"

#include <algorithm>

#include "transport/host_cores.h"

namespace coprime {

WaitPolicy choose_wait_policy(int cores, int ranks, int threads_per_rank) {
  const int64_t threads = int64_t{ranks} * std::max(threads_per_rank, 1);
  if (threads <= cores) return {.spin_us = 50, .yield_us = 2000};
  return {.spin_us = 0, .yield_us = 500};
}

int usable_cores() { return read_host_cores().usable(); }

}  // namespace coprime
