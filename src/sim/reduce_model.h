// What a reduction of (m, l, O) costs by the model of "Near-Optimal Wafer-Scale Reduce" (arXiv 2404.15888), with the
// constants of our chip: an oracle for the choice of a topology that knows nothing of events.
//
//   cost = max(contention, energy / links + distance) + step * depth
//
// The paper's machine adds as words stream through; ours stores and forwards whole messages. So a step of depth (the
// paper's 2 T_R + 1) is all of one message: its sends, transfer, one hop, receives and the merge; and the other terms
// count what comes on top of that: contention, the messages that the busiest place receives beyond one a step, each at
// the time in which a place can take messages one after the other; energy / links, the transfers per link that is
// used, beyond one; distance, the hops of the longest way, beyond one a step.
#pragma once

#include "attention/reduce_schedule.h"
#include "sim/chip.h"

namespace coprime::sim {

struct ReduceCost {
  Tick contention = 0, energy = 0, distance = 0;
  Tick step = 0;
  int depth = 0;

  Tick total() const;
};

// One level; `link` is the one of that level. Payload: (m, l, O) of `rows` x `d`, all in f32.
ReduceCost reduce_cost(const Chip& chip, const Link& link, const attention::ReduceSchedule& schedule, int64_t rows,
                       int64_t d);

// Both levels, one after the other.
Tick reduce_cost(const Chip& chip, const attention::TwoLevelReduce& reduce, int64_t rows, int64_t d);

}  // namespace coprime::sim
