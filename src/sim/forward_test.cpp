// Loops that are accounted for at once, against the same runs by events alone: every tick and every count.
#include <gtest/gtest.h>

#include "sim/testing/random_cases.h"

namespace coprime::sim {
namespace {

void expect_equal(const RunResult& forwarded, const RunResult& events, const std::string& what) {
  ASSERT_EQ(forwarded.ticks, events.ticks) << what;
  ASSERT_EQ(forwarded.path, events.path) << what;
  ASSERT_EQ(forwarded.totals.time, events.totals.time) << what;
  ASSERT_EQ(forwarded.totals.last_pe, events.totals.last_pe) << what;
  ASSERT_EQ(forwarded.totals.busiest_link, events.totals.busiest_link) << what;
  ASSERT_EQ(forwarded.totals.arena_high_water, events.totals.arena_high_water) << what;
  ASSERT_EQ(forwarded.energy_pj, events.energy_pj) << what;
  for (Totals totals : {forwarded.totals.pes, forwarded.totals.busiest}) {
    const Totals& other = totals.issue == forwarded.totals.pes.issue ? events.totals.pes : events.totals.busiest;
    totals.forwarded = 0;
    // Loop heads are no operation.
    totals.issued[static_cast<size_t>(tl::Op::kRepeat)] = other.issued[static_cast<size_t>(tl::Op::kRepeat)];
    ASSERT_EQ(totals, other) << what;
  }
}

struct Share {
  int cases = 0, forwarded = 0;
};

Share compare(uint64_t seed, int count, int64_t longer) {
  testing::RandomCases random(seed);
  Share share;
  for (int i = 0; i < count; ++i) {
    testing::Case made = random.next();
    made.chip.contention = i % 2 == 0;
    made.spec.context *= longer, made.spec.largest_context *= longer;
    made.spec.kv_heads = 1 + i % 3;
    made.spec.forward = true;
    const RunResult forwarded = run(made.chip, made.spec);
    made.spec.forward = false;
    const RunResult events = run(made.chip, made.spec);
    EXPECT_EQ(events.totals.pes.forwarded, 0u);
    expect_equal(forwarded, events, fmt::format("case {} of seed {}", i, seed));
    if (::testing::Test::HasFatalFailure()) return share;
    ++share.cases;
    if (forwarded.totals.pes.forwarded > 0) ++share.forwarded;
  }
  return share;
}

TEST(Forward, every_tick_and_count_is_that_of_the_events_on_random_small_chips) {
  const Share share = compare(11, 1500, 12);
  EXPECT_GT(share.forwarded * 2, share.cases);
}

TEST(ForwardSoak, every_tick_and_count_is_that_of_the_events_on_10000_random_small_chips) {
  const Share share = compare(12, 10'000, 12);
  EXPECT_GT(share.forwarded * 2, share.cases);
}

TEST(Forward, a_layer_at_1M_tokens_is_nearly_all_accounted_for_at_once) {
  RunSpec spec;
  const RunResult result = run(ahbm_chip(), spec);
  EXPECT_GT(static_cast<double>(result.totals.pes.forwarded), 0.95 * static_cast<double>(result.totals.time));
}

}  // namespace
}  // namespace coprime::sim
