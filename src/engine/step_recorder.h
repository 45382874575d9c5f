// Records what a rank does in a step that is to be traced: the step, its gates' phases, and the computing between them.
// Its memory is enough for the gates of a schedule, and is there from the first.
#pragma once

#include "collective/gate_observer.h"
#include "trace/event_ring.h"

namespace coprime {

class StepRecorder final : public GateObserver {
 public:
  explicit StepRecorder(size_t gates);

  void begin_step();
  // Moves what was recorded since begin_step() into `into`.
  void end_step(uint64_t step, RecordedStep& into);

  void phase_ended(const GateEntry& gate, const GateMoment& moment) override;

 private:
  uint64_t clock_;
  EventRing ring_;
  bool recording_ = false;
  int64_t step_begin_ns_ = 0, gate_end_ns_ = 0;
};

}  // namespace coprime
