// Through what a pair's machine acts: the queue pair and the side channel of one peer, or a test's model of them. It
// does not call the machine back.
#pragma once

#include <span>

#include "transport/queue_pair.h"
#include "transport/side_channel.h"

namespace coprime {

class PairPort {
 public:
  virtual ~PairPort() = default;
  virtual void post_recv(std::span<const WorkRequest> chain) = 0;
  virtual void post_send(std::span<const WorkRequest> chain) = 0;
  virtual void send_barrier(const Barrier& barrier) = 0;
};

}  // namespace coprime
