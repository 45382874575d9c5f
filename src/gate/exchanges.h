// The exchanges that there are, by link. Each end belongs to one rank and one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/unique_fd.h"
#include "gate/exchange.h"
#include "transport/progress_page.h"
#include "transport/shm/shm_region.h"
#include "transport/wait_policy.h"

namespace coprime {

struct ExchangeSettings {
  WaitPolicy wait;
  int timeout_ms = 5000;  // since the awaited peer's progress counter last moved
  uint32_t epoch = 1;     // grows when the links of a world are rebuilt
};

// A world of one: publishing is all there is.
std::unique_ptr<Exchange> make_local_exchange(size_t max_bytes);

// Shared memory. The region and the page are the world's, of equal rank counts.
std::unique_ptr<Exchange> make_window_exchange(std::shared_ptr<const ShmRegion> region, int rank,
                                               std::shared_ptr<const ProgressPage> progress,
                                               const ExchangeSettings& settings);

// TCP. mesh[r] is the connection to rank r (sockets_of(connect_mesh())); this rank's own is empty. Slots hold
// max_bytes.
std::unique_ptr<Exchange> make_tcp_exchange(std::vector<UniqueFd> mesh, int rank, size_t max_bytes,
                                            std::shared_ptr<const ProgressPage> progress,
                                            const ExchangeSettings& settings);

}  // namespace coprime
