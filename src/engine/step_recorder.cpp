#include "engine/step_recorder.h"

#include "base/clock.h"
#include "trace/clock_id.h"

namespace coprime {
namespace {

constexpr size_t kEventsOfGate = 7;  // the computing before it, and two exchanges of three phases

TraceKind kind_of(GatePhase phase) {
  return phase == GatePhase::kPublish ? TraceKind::kPublish
         : phase == GatePhase::kWait  ? TraceKind::kWait
                                      : TraceKind::kFold;
}

}  // namespace

StepRecorder::StepRecorder(size_t gates) : clock_(clock_id()), ring_(kEventsOfGate * gates + 2) {}

void StepRecorder::begin_step() {
  ring_.clear();
  recording_ = true;
  step_begin_ns_ = gate_end_ns_ = now_ns();
}

void StepRecorder::end_step(uint64_t step, RecordedStep& into) {
  const int64_t end_ns = now_ns();
  ring_.record({.begin_ns = gate_end_ns_, .end_ns = end_ns, .kind = TraceKind::kCompute});
  ring_.record({.begin_ns = step_begin_ns_, .end_ns = end_ns, .sequence = step, .kind = TraceKind::kStep});
  recording_ = false;
  into.clock = clock_;
  into.overwritten = ring_.overwritten();
  ring_.copy_to(into.events);
}

void StepRecorder::phase_ended(const GateEntry&, const GateMoment& moment) {
  if (!recording_) return;
  if (moment.begin_ns > gate_end_ns_) {
    ring_.record(
        {.begin_ns = gate_end_ns_, .end_ns = moment.begin_ns, .entry = moment.entry, .kind = TraceKind::kCompute});
  }
  ring_.record({.begin_ns = moment.begin_ns,
                .end_ns = moment.end_ns,
                .sequence = moment.sequence,
                .bytes = moment.bytes,
                .entry = moment.entry,
                .kind = kind_of(moment.phase)});
  gate_end_ns_ = moment.end_ns;
}

}  // namespace coprime
