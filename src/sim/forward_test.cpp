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

void compare(testing::Case made, const std::string& what, Share& share) {
  made.spec.forward = true;
  const RunResult forwarded = run(made.chip, made.spec);
  made.spec.forward = false;
  const RunResult events = run(made.chip, made.spec);
  EXPECT_EQ(events.totals.pes.forwarded, 0u);
  expect_equal(forwarded, events, what);
  ++share.cases;
  if (forwarded.totals.pes.forwarded > 0) ++share.forwarded;
}

// Half of them with links that messages share.
Share compare_decode(uint64_t seed, int count, int64_t longer) {
  testing::RandomCases random(seed);
  Share share;
  for (int i = 0; i < count && !::testing::Test::HasFatalFailure(); ++i) {
    testing::Case made = random.next();
    made.chip.contention = i % 2 == 0;
    made.spec.context *= longer, made.spec.largest_context *= longer;
    made.spec.kv_heads = 1 + i % 3;
    compare(made, fmt::format("case {} of seed {}", i, seed), share);
  }
  return share;
}

// By kernel.
std::array<Share, tl::kKernels.size()> compare_all_kernels(uint64_t seed, int count) {
  testing::RandomCases random(seed);
  std::array<Share, tl::kKernels.size()> shares;
  for (int i = 0; i < count && !::testing::Test::HasFatalFailure(); ++i) {
    testing::Case made = random.next_of_any_kernel();
    made.chip.contention = i % 2 == 0;
    const tl::Kernel kernel = made.spec.kernel;
    compare(made, fmt::format("case {} of seed {}: {}", i, seed, tl::name_of(kernel)),
            shares[static_cast<size_t>(kernel)]);
  }
  return shares;
}

TEST(Forward, every_tick_and_count_is_that_of_the_events_on_random_small_chips) {
  const Share share = compare_decode(11, 1500, 12);
  EXPECT_GT(share.forwarded * 2, share.cases);
}

TEST(ForwardSoak, every_tick_and_count_is_that_of_the_events_on_10000_random_small_chips) {
  const Share share = compare_decode(12, 10'000, 12);
  EXPECT_GT(share.forwarded * 2, share.cases);
}

TEST(Forward, every_tick_and_count_of_any_kernel_is_that_of_the_events) {
  const auto shares = compare_all_kernels(13, 1000);
  for (const tl::Kernel kernel : tl::kKernels) {
    if (kernel == tl::Kernel::kHeadPacking) continue;  // it never runs to its end
    EXPECT_GT(shares[static_cast<size_t>(kernel)].cases, 80) << tl::name_of(kernel);
  }
  for (const tl::Kernel loops : {tl::Kernel::kPrefill, tl::Kernel::kDecodeShort})
    EXPECT_GT(shares[static_cast<size_t>(loops)].forwarded, 10) << tl::name_of(loops);
}

TEST(ForwardSoak, every_tick_and_count_of_any_kernel_is_that_of_the_events_on_10000_random_small_chips) {
  int cases = 0;
  for (const Share& share : compare_all_kernels(14, 10'000)) cases += share.cases;
  EXPECT_EQ(cases, 10'000);
}

TEST(Forward, a_layer_at_1M_tokens_is_nearly_all_accounted_for_at_once) {
  RunSpec spec;
  const RunResult result = run(ahbm_chip(), spec);
  EXPECT_GT(static_cast<double>(result.totals.pes.forwarded), 0.95 * static_cast<double>(result.totals.time));
}

// 8 PEs of a CUBE send over one link: 8 chunks, 7 transfers of K and V each, of 64 PEs.
TEST(Forward, packets_of_a_prefill_at_128K_tokens_are_nearly_all_served_by_turns) {
  RunSpec spec;
  spec.kernel = tl::Kernel::kPrefill;
  spec.context = 1 << 17;
  const PacketTotals packets = run(ahbm_chip(), spec).totals.packets;
  EXPECT_EQ(packets.served, 8u * 7 * 2 * 64 * ((1 << 17) / 64 * 128 * 2 / 512));
  EXPECT_GT(static_cast<double>(packets.by_turns), 0.95 * static_cast<double>(packets.served));
}

}  // namespace
}  // namespace coprime::sim
