#include <gtest/gtest.h>
#include <stdlib.h>

#include <nlohmann/json.hpp>

#include "trace/chrome_trace.h"
#include "trace/clock_id.h"
#include "trace/event_ring.h"

namespace coprime {
namespace {

TEST(EventRing, keeps_the_newest_events_in_order_and_counts_what_it_lost) {
  EventRing ring(3);
  std::vector<TraceEvent> events;
  for (uint64_t i = 0; i < 3; ++i) ring.record({.sequence = i});
  ring.copy_to(events);
  EXPECT_EQ(ring.overwritten(), 0u);
  ASSERT_EQ(events.size(), 3u);
  for (uint64_t i = 3; i < 5; ++i) ring.record({.sequence = i});
  ring.copy_to(events);
  EXPECT_EQ(ring.overwritten(), 2u);
  ASSERT_EQ(events.size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(events[i].sequence, i + 2);
  ring.clear();
  ring.copy_to(events);
  EXPECT_TRUE(events.empty());
  EXPECT_EQ(ring.overwritten(), 0u);
}

TEST(ClockId, is_the_same_each_time_and_known_here) {
  EXPECT_NE(clock_id(), 0u);
  EXPECT_EQ(clock_id(), clock_id());
}

TEST(ChromeTrace, has_tracks_slices_and_notes_with_times_from_the_earliest_slice_on) {
  ChromeTrace trace;
  trace.name_track(0, "front");
  trace.name_track(1, "rank 0 \"a\\b\"");
  trace.note("clocks", "one");
  trace.add({.track = 1,
             .name = "FFN",
             .category = "gate",
             .begin_ns = 9'000'001'500,
             .end_ns = 9'000'002'501,
             .arguments = {{"layer", 3}, {"text", "x\ny"}}});
  trace.add({.track = 0, .name = "step", .category = "step", .begin_ns = 9'000'000'000, .end_ns = 9'000'003'000});
  const auto json = nlohmann::json::parse(trace.json());
  EXPECT_EQ(json["otherData"]["clocks"], "one");
  const auto& events = json["traceEvents"];
  ASSERT_EQ(events.size(), 6u);  // two of metadata for each track
  EXPECT_EQ(events[0]["ph"], "M");
  EXPECT_EQ(events[2]["args"]["name"], "rank 0 \"a\\b\"");
  EXPECT_EQ(events[3]["args"]["sort_index"], 1);
  EXPECT_EQ(events[4]["ph"], "X");
  EXPECT_EQ(events[4]["tid"], 1);
  EXPECT_EQ(events[4]["ts"].get<double>(), 1.5);
  EXPECT_EQ(events[4]["dur"].get<double>(), 1.001);
  EXPECT_EQ(events[4]["args"]["layer"], 3);
  EXPECT_EQ(events[4]["args"]["text"], "x\ny");
  EXPECT_EQ(events[5]["ts"].get<double>(), 0);
}

TEST(ChromeTrace, without_slices_is_valid) { EXPECT_TRUE(nlohmann::json::accept(ChromeTrace().json())); }

}  // namespace
}  // namespace coprime
