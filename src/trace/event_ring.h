// What a rank did, as slices of time, kept until the front asks for them. The memory is there before the first event:
// recording is a store, without allocation, lock or system call, so that it can stand on the path of a step. One
// thread's; when the ring is full the oldest event is overwritten, and counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace coprime {

enum class TraceKind : uint32_t {
  kStep,     // a whole step
  kCompute,  // between two gates, and before the first and after the last of a step
  kPublish,  // of a gate: handing the contribution to the links
  kWait,     // until all contributions are there
  kFold,     // adding them
};
inline constexpr uint32_t kTraceKinds = 5;

struct TraceEvent {
  int64_t begin_ns = 0, end_ns = 0;  // of the rank's monotonic clock
  uint64_t sequence = 0;             // of the gate; the step's number for kStep
  uint64_t bytes = 0;                // that this rank contributes to the gate
  int32_t entry = -1;                // of the gate's schedule; for kCompute, the gate that it leads to; -1: none
  TraceKind kind = TraceKind::kStep;
};
static_assert(sizeof(TraceEvent) == 40, "travels as its bytes: no padding");

// The events of one step of one rank, as they travel to the front.
struct RecordedStep {
  uint64_t clock = 0;        // clock_id() of the rank's host
  uint64_t overwritten = 0;  // events that found no room
  std::vector<TraceEvent> events;
};

class EventRing {
 public:
  explicit EventRing(size_t capacity);  // at least 1

  void record(const TraceEvent& event) noexcept {
    events_[recorded_ % events_.size()] = event;
    ++recorded_;
  }
  void clear() { recorded_ = 0; }

  uint64_t overwritten() const;
  void copy_to(std::vector<TraceEvent>& into) const;  // oldest first

 private:
  std::vector<TraceEvent> events_;
  uint64_t recorded_ = 0;
};

}  // namespace coprime
