// Proves that messages of full size go both ways before the first gate relies on it. A fresh UC pair sometimes delivers
// nothing in one direction, and small probes pass where 16 KiB messages do not: such a pair is made anew.
//
// After success both receive queues are empty and no message is on its way. Each side has one receive posted while it
// has not confirmed; each round numbers its message; and a side confirms only the message of the round that both are
// in, so that every earlier one was lost (delivery is in order) and no later one follows.
#pragma once

#include <string>
#include <vector>

#include "transport/verbs/setup_stream.h"
#include "transport/verbs/verbs_queue_pair.h"

namespace coprime {

class WarmUp {
 public:
  static constexpr size_t kBytes = DS4_TP_RDMA_MAX_MSG;
  static constexpr int kUcRounds = 20;
  static constexpr int kUcRoundMs = 100;

  // gate_timeout_ms: how long RC's one round may take.
  explicit WarmUp(int gate_timeout_ms) : gate_timeout_ms_(gate_timeout_ms), memory_(2 * kBytes) {}

  // Empty on success, else why the pair is to be made anew; both ranks come to the same answer. Error(kLink) when the
  // peer cannot be talked to, or the device does not register the memory. The object outlives the pair's failed use.
  std::string run(VerbsQueuePair& pair, SetupStream& stream, int attempt);

 private:
  struct Round;
  int gate_timeout_ms_;
  std::vector<std::byte> memory_;  // what is sent, then what is received
};

}  // namespace coprime
