// One step as the front and all ranks saw it, and many of them as a trace for ui.perfetto.dev: a track for the front
// and one for each rank, on it the step, its gates with their phases, and the computing between them.
//
// Ranks of the front's host share its clock. A rank of another host is moved so that its step begins when the earliest
// of the front's host begins (the front's own where there is none): right to the time that a message takes, and noted
// in the trace.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gate/schedule.h"
#include "trace/event_ring.h"

namespace coprime {

struct StepTrace {
  std::string name;  // "prefill of 57 rows"
  uint64_t step = 0;
  uint64_t clock = 0;                // the front's
  int64_t begin_ns = 0, end_ns = 0;  // the front's: from sending the step to having merged its results
  std::vector<RecordedStep> ranks;
};

// Error(kInternal) for events of gates that the schedule does not have.
std::string trace_json(std::span<const StepTrace> steps, const GateSchedule& schedule);

}  // namespace coprime
