// Who watches a communicator's gates: profiles, traces. Called on the rank's thread, within the step, so that an
// observer on the path of a real run neither allocates, locks nor enters the kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gate/schedule.h"

namespace coprime {

enum class GatePhase : uint8_t {
  kPublish,  // handing this rank's contribution to the links
  kWait,     // until all contributions are there
  kFold,     // adding or copying them
};

// One phase of a gate that is over. A gate has kPublish, kWait, kFold, one right behind the other; a sum by owners has
// them twice, with a sequence each.
struct GateMoment {
  GatePhase phase = GatePhase::kPublish;
  int entry = 0;  // of the schedule
  uint64_t sequence = 0;
  size_t bytes = 0;  // that this rank contributes
  int64_t begin_ns = 0, end_ns = 0;
};

class GateObserver {
 public:
  virtual ~GateObserver() = default;

  // The slot of a gate is asked for, and its order is not yet checked. `sequence` is what the gate will have.
  virtual void gate_asked(const GateEntry& /*gate*/, int /*entry*/, uint64_t /*sequence*/) {}

  virtual void phase_ended(const GateEntry& /*gate*/, const GateMoment& /*moment*/) {}
};

}  // namespace coprime
