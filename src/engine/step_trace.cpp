#include "engine/step_trace.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "trace/chrome_trace.h"

namespace coprime {
namespace {

constexpr int kFrontTrack = 0;
int track_of(size_t rank) { return static_cast<int>(rank) + 1; }

const char* kind_name(TraceKind kind) {
  switch (kind) {
    case TraceKind::kStep:
      return "step";
    case TraceKind::kCompute:
      return "compute";
    case TraceKind::kPublish:
      return "publish";
    case TraceKind::kWait:
      return "wait";
    case TraceKind::kFold:
      return "fold";
  }
  return "";
}

bool shares_clock(const StepTrace& step, const RecordedStep& rank) {
  return rank.clock != 0 && rank.clock == step.clock;
}

// When the rank's step began, by its own clock; 0 for one that recorded nothing.
int64_t begin_of(const RecordedStep& rank) {
  const auto step = std::ranges::find(rank.events, TraceKind::kStep, &TraceEvent::kind);
  return step == rank.events.end() ? 0 : step->begin_ns;
}

// What is added to the rank's times to make them the front's.
int64_t shift_of(const StepTrace& step, const RecordedStep& rank) {
  if (shares_clock(step, rank)) return 0;
  int64_t reference = std::numeric_limits<int64_t>::max();
  for (const RecordedStep& other : step.ranks) {
    if (shares_clock(step, other)) reference = std::min(reference, begin_of(other));
  }
  if (reference == std::numeric_limits<int64_t>::max()) reference = step.begin_ns;
  return reference - begin_of(rank);
}

std::vector<TraceArgument> arguments_of(const TraceEvent& event, const GateSchedule& schedule) {
  if (event.kind == TraceKind::kStep) return {};
  if (event.kind == TraceKind::kCompute) {
    return {{"before", event.entry < 0 ? "the step's end" : gate_text(schedule[static_cast<size_t>(event.entry)])}};
  }
  return {{"sequence", static_cast<int64_t>(event.sequence)}, {"bytes", static_cast<int64_t>(event.bytes)}};
}

// The slice of a whole gate, whose phases are events [first, end).
TraceSlice gate_slice(std::span<const TraceEvent> events, size_t first, size_t end, const GateSchedule& schedule) {
  const TraceEvent& begin = events[first];
  const GateEntry& gate = schedule[static_cast<size_t>(begin.entry)];
  TraceSlice slice{.name = std::string(gate_name(gate.kind)),
                   .category = "gate",
                   .begin_ns = begin.begin_ns,
                   .end_ns = events[end - 1].end_ns,
                   .arguments = {{"slot", begin.entry}, {"sequence", static_cast<int64_t>(begin.sequence)}}};
  if (gate.layer >= 0) slice.arguments.emplace_back("layer", gate.layer);
  return slice;
}

bool is_phase(const TraceEvent& event) { return event.kind != TraceKind::kStep && event.kind != TraceKind::kCompute; }

void add_rank(ChromeTrace& trace, const StepTrace& step, size_t rank, const GateSchedule& schedule) {
  const RecordedStep& recorded = step.ranks[rank];
  const std::span<const TraceEvent> events = recorded.events;
  const int64_t shift_ns = shift_of(step, recorded);
  const auto add = [&](TraceSlice slice) {
    slice.track = track_of(rank);
    slice.begin_ns += shift_ns;
    slice.end_ns += shift_ns;
    trace.add(std::move(slice));
  };
  for (size_t i = 0; i < events.size(); ++i) {
    const TraceEvent& event = events[i];
    if (event.entry >= static_cast<int32_t>(schedule.size()) || (event.entry < 0 && is_phase(event))) {
      fail(ErrorKind::kInternal, "rank {} recorded an event of gate {}, and the schedule has {}", rank, event.entry,
           schedule.size());
    }
    const bool first_phase =
        is_phase(event) && (i == 0 || !is_phase(events[i - 1]) || events[i - 1].entry != event.entry);
    if (first_phase) {
      size_t end = i;
      while (end < events.size() && is_phase(events[end]) && events[end].entry == event.entry) ++end;
      add(gate_slice(events, i, end, schedule));
    }
    add({.name = event.kind == TraceKind::kStep ? step.name : kind_name(event.kind),
         .category = kind_name(event.kind),
         .begin_ns = event.begin_ns,
         .end_ns = event.end_ns,
         .arguments = arguments_of(event, schedule)});
  }
}

void add_notes(ChromeTrace& trace, std::span<const StepTrace> steps, size_t ranks) {
  std::string names, moved;
  uint64_t lost = 0;
  for (const StepTrace& step : steps) {
    names += fmt::format("{}step {}: {}", names.empty() ? "" : "; ", step.step, step.name);
    for (const RecordedStep& rank : step.ranks) lost += rank.overwritten;
  }
  for (size_t rank = 0; rank < ranks; ++rank) {
    const bool apart =
        std::ranges::any_of(steps, [&](const StepTrace& step) { return !shares_clock(step, step.ranks[rank]); });
    if (apart) moved += fmt::format("{}{}", moved.empty() ? "" : ", ", rank);
  }
  trace.note("steps", names);
  trace.note("clocks", moved.empty() ? "one clock on all tracks"
                                     : fmt::format("rank {} on another host: moved so that its step begins with the "
                                                   "others', right to a message's time on the way",
                                                   moved));
  if (lost > 0) trace.note("lost", fmt::format("{} events that found no room", lost));
}

}  // namespace

std::string trace_json(std::span<const StepTrace> steps, const GateSchedule& schedule) {
  size_t ranks = 0;
  for (const StepTrace& step : steps) ranks = std::max(ranks, step.ranks.size());
  ChromeTrace trace;
  trace.name_track(kFrontTrack, "front");
  for (size_t rank = 0; rank < ranks; ++rank) trace.name_track(track_of(rank), fmt::format("rank {}", rank));
  add_notes(trace, steps, ranks);
  for (const StepTrace& step : steps) {
    trace.add({.track = kFrontTrack,
               .name = step.name,
               .category = "step",
               .begin_ns = step.begin_ns,
               .end_ns = step.end_ns,
               .arguments = {{"step", static_cast<int64_t>(step.step)}}});
    for (size_t rank = 0; rank < step.ranks.size(); ++rank) add_rank(trace, step, rank, schedule);
  }
  return trace.json();
}

}  // namespace coprime
