#include "engine/step_trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "engine/step_recorder.h"

namespace coprime {
namespace {

const GateSchedule kSchedule = {{GateKind::kEmbedding, -1, 64, 1}, {GateKind::kFfn, 4, 64, 1}};

// What a rank records whose step begins at `begin_ns`: one gate of each entry, the second a sum by owners.
RecordedStep recorded(uint64_t clock, int64_t begin_ns) {
  RecordedStep step{.clock = clock};
  const auto add = [&](int64_t from, int64_t to, int entry, TraceKind kind, uint64_t sequence) {
    step.events.push_back({begin_ns + from, begin_ns + to, sequence, 64, entry, kind});
  };
  add(0, 100, 0, TraceKind::kCompute, 0);
  add(100, 110, 0, TraceKind::kPublish, 7);
  add(110, 150, 0, TraceKind::kWait, 7);
  add(150, 160, 0, TraceKind::kFold, 7);
  add(160, 161, 1, TraceKind::kPublish, 8);  // without computing between
  add(161, 162, 1, TraceKind::kWait, 8);
  add(162, 163, 1, TraceKind::kFold, 8);
  add(163, 164, 1, TraceKind::kPublish, 9);
  add(164, 165, 1, TraceKind::kWait, 9);
  add(165, 166, 1, TraceKind::kFold, 9);
  add(166, 180, -1, TraceKind::kCompute, 0);
  add(0, 180, -1, TraceKind::kStep, 9);
  return step;
}

StepTrace step_of(std::vector<RecordedStep> ranks) {
  return {.name = "decode", .step = 9, .clock = 5, .begin_ns = 1000, .end_ns = 2000, .ranks = std::move(ranks)};
}

struct Slice {
  std::string name;
  double ts, dur;
  nlohmann::json args;
};

std::vector<Slice> slices_of(const nlohmann::json& trace, int track) {
  std::vector<Slice> slices;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["tid"] == track)
      slices.push_back({event["name"], event["ts"], event["dur"], event["args"]});
  }
  return slices;
}

TEST(StepTrace, shows_gates_with_their_phases_within_the_step) {
  const StepTrace step = step_of({recorded(5, 1050)});
  const auto trace = nlohmann::json::parse(trace_json({&step, 1}, kSchedule));
  const auto front = slices_of(trace, 0), rank = slices_of(trace, 1);
  ASSERT_EQ(front.size(), 1u);
  EXPECT_EQ(front[0].name, "decode");
  EXPECT_EQ(front[0].dur, 1.0);
  ASSERT_EQ(rank.size(), 14u);
  EXPECT_EQ(rank[0].name, "compute");
  EXPECT_EQ(rank[0].args["before"], "gate EMBED");
  EXPECT_EQ(rank[0].ts, 0.05);
  EXPECT_EQ(rank[1].name, "EMBED");
  EXPECT_EQ(rank[1].ts, 0.15);
  EXPECT_EQ(rank[1].dur, 0.06);
  EXPECT_FALSE(rank[1].args.contains("layer"));
  EXPECT_EQ(rank[3].name, "wait");
  EXPECT_EQ(rank[5].name, "FFN");  // both exchanges are one gate
  EXPECT_EQ(rank[5].dur, 0.006);
  EXPECT_EQ(rank[5].args, (nlohmann::json{{"slot", 1}, {"sequence", 8}, {"layer", 4}}));
  EXPECT_EQ(rank[9].args["sequence"], 9);
  EXPECT_EQ(rank[12].args["before"], "the step's end");
  EXPECT_EQ(rank[13].name, "decode");
  EXPECT_EQ(trace["otherData"]["clocks"], "one clock on all tracks");
  EXPECT_EQ(trace["otherData"]["steps"], "step 9: decode");
}

TEST(StepTrace, moves_ranks_of_other_clocks_to_the_steps_begin_and_says_so) {
  const StepTrace step = step_of({recorded(77, 5'000'000), recorded(5, 1080), recorded(5, 1050), recorded(0, 3)});
  const auto trace = nlohmann::json::parse(trace_json({&step, 1}, kSchedule));
  EXPECT_EQ(slices_of(trace, 1)[0].ts, 0.05);
  EXPECT_EQ(slices_of(trace, 2)[0].ts, 0.08);
  EXPECT_EQ(slices_of(trace, 3)[0].ts, 0.05);
  EXPECT_EQ(slices_of(trace, 4)[0].ts, 0.05);
  const std::string note = trace["otherData"]["clocks"];
  EXPECT_TRUE(note.starts_with("rank 0, 3 on another host")) << note;

  const StepTrace all_apart = step_of({recorded(77, 5'000'000)});
  EXPECT_EQ(slices_of(nlohmann::json::parse(trace_json({&all_apart, 1}, kSchedule)), 1)[0].ts, 0);
}

TEST(StepTrace, tells_of_events_that_were_lost) {
  StepTrace step = step_of({recorded(5, 1050)});
  step.ranks[0].overwritten = 3;
  const auto trace = nlohmann::json::parse(trace_json({&step, 1}, kSchedule));
  EXPECT_EQ(trace["otherData"]["lost"], "3 events that found no room");
}

TEST(StepTrace, of_gates_that_the_schedule_does_not_have_is_refused) {
  for (const int entry : {2, -1}) {
    StepTrace step = step_of({recorded(5, 1050)});
    step.ranks[0].events[1].entry = entry;
    EXPECT_THROW(trace_json({&step, 1}, kSchedule), Error) << entry;
  }
}

TEST(StepRecorder, records_only_within_a_step_with_the_computing_between_gates) {
  StepRecorder recorder(1);
  recorder.phase_ended(kSchedule[0], {GatePhase::kPublish, 0, 1, 8, 10, 20});
  recorder.begin_step();
  RecordedStep step;
  recorder.end_step(3, step);
  ASSERT_EQ(step.events.size(), 2u);
  EXPECT_EQ(step.events[1].kind, TraceKind::kStep);
  EXPECT_EQ(step.events[1].sequence, 3u);

  recorder.begin_step();
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const int64_t gate_ns = now_ns();
  recorder.phase_ended(kSchedule[0], {GatePhase::kPublish, 0, 6, 8, gate_ns, gate_ns + 10});
  recorder.phase_ended(kSchedule[0], {GatePhase::kWait, 0, 6, 8, gate_ns + 10, gate_ns + 30});
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  recorder.end_step(4, step);
  ASSERT_EQ(step.events.size(), 5u);
  EXPECT_EQ(step.events[0].kind, TraceKind::kCompute);
  EXPECT_EQ(step.events[0].entry, 0);
  EXPECT_EQ(step.events[0].end_ns, gate_ns);
  EXPECT_EQ(step.events[2].kind, TraceKind::kWait);
  EXPECT_EQ(step.events[2].begin_ns, gate_ns + 10);
  EXPECT_EQ(step.events[2].sequence, 6u);
  EXPECT_EQ(step.events[3].kind, TraceKind::kCompute);
  EXPECT_EQ(step.events[3].begin_ns, gate_ns + 30);
  EXPECT_EQ(step.events[3].end_ns, step.events[4].end_ns);
  EXPECT_EQ(step.events[4].begin_ns, step.events[0].begin_ns);
  EXPECT_EQ(step.overwritten, 0u);
}

}  // namespace
}  // namespace coprime
