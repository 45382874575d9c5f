#include "tools/sim_dispatch.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "sim/decode_model.h"

namespace coprime {
namespace {

using attention::DecodeLayout;

sim::RunSpec spec_of(int64_t context, int cubes = 8) {
  sim::RunSpec spec;
  spec.context = context, spec.cubes = cubes;
  return spec;
}

SimDispatch dispatch(const sim::RunSpec& spec, int64_t threshold = attention::kLongFrom) {
  return dispatch_decode(sim::ahbm_chip(), spec, threshold);
}

bool says(const SimDispatch& dispatch, std::string_view words) {
  for (const std::string& reason : dispatch.reasons)
    if (reason.find(words) != std::string::npos) return true;
  return false;
}

TEST(SimDispatch, runs_whole_heads_below_the_threshold_and_groups_from_it_on) {
  const SimDispatch below = dispatch(spec_of((512 << 10) - 64));
  EXPECT_EQ(below.spec.kernel, tl::Kernel::kDecodeShort);
  EXPECT_TRUE(says(below, "are 8191 a rank, fewer than 8192"));
  EXPECT_EQ(sim::run(sim::ahbm_chip(), below.spec).totals.levels[1].messages, 0u);  // none between CUBEs
  const SimDispatch from = dispatch(spec_of(512 << 10));
  EXPECT_EQ(from.spec.kernel, tl::Kernel::kDecode);
  EXPECT_EQ(from.spec.cubes, 8);
  EXPECT_TRUE(says(from, "are 8192 a rank, no fewer than 8192"));
  EXPECT_EQ(sim::run(sim::ahbm_chip(), from.spec).sends_total, 1512);
}

TEST(SimDispatch, one_shot_runs_where_it_says_that_the_shard_fits) {
  const int64_t fits = dispatch(spec_of(1024)).request.one_shot_keys * 64;
  for (const int64_t context : {fits, fits + 1}) {
    const SimDispatch one = dispatch(spec_of(context));
    EXPECT_EQ(one.choice.one_shot, context == fits);
    const sim::RunResult result = sim::run(sim::ahbm_chip(), one.spec);
    EXPECT_EQ(result.totals.pes.issued[static_cast<size_t>(tl::Op::kMax)] == 512, context == fits);
  }
}

TEST(SimDispatch, sequence_parallelism_is_off_below_its_threshold) {
  const int64_t from = attention::sp_from(dispatch(spec_of(1024)).request.in_cube);
  EXPECT_EQ(dispatch(spec_of(from)).choice.layout, DecodeLayout::kShort);
  const SimDispatch off = dispatch(spec_of(from - 1));
  EXPECT_EQ(off.choice.layout, DecodeLayout::kOnePe);
  EXPECT_TRUE(says(off, "sequence parallelism is off"));
  const sim::RunResult result = sim::run(sim::ahbm_chip(), off.spec);
  EXPECT_EQ(result.sends_total, 0);
  EXPECT_EQ(result.pes, 8);
}

// The threshold is where the closed forms cross: it is near where the simulation does.
TEST(SimDispatch, the_threshold_of_sequence_parallelism_is_near_what_is_simulated) {
  const int64_t from = attention::sp_from(dispatch(spec_of(1024)).request.in_cube);
  const auto gain = [](int64_t context) {
    sim::RunSpec alone = spec_of(context), shared = spec_of(context);
    alone.cubes = alone.pes = shared.cubes = 1;
    return static_cast<double>(sim::run(sim::ahbm_chip(), alone).ticks) /
           static_cast<double>(sim::run(sim::ahbm_chip(), shared).ticks);
  };
  EXPECT_LT(gain(from / 2), 1);
  EXPECT_GT(gain(from * 2), 1);
}

TEST(SimDispatch, chooses_by_the_largest_context_and_prices_the_change) {
  sim::RunSpec spec = spec_of(128 << 10);
  EXPECT_FALSE(dispatch(spec).change.has_value());
  spec.largest_context = 1 << 20;
  const SimDispatch grows = dispatch(spec);
  EXPECT_EQ(grows.choice.layout, DecodeLayout::kLong);
  ASSERT_TRUE(grows.change.has_value());
  EXPECT_EQ(grows.change->now.layout, DecodeLayout::kShort);
  EXPECT_GT(grows.change->reshard.bytes, 6 * (int64_t{128} << 10) * 512);
  EXPECT_LE(grows.change->reshard.bytes, 8 * (int64_t{128} << 10) * 512);
  EXPECT_TRUE(says(grows, "reshard"));
}

TEST(SimDispatch, offers_the_other_ways_beside_the_one_of_the_rule) {
  const SimDispatch one =
      dispatch(spec_of(64 << 10));  // short: 1024 keys a rank of the long one, 8192 of the short one
  ASSERT_EQ(one.choice.layout, DecodeLayout::kShort);
  ASSERT_EQ(one.alternatives.size(), 2u);
  EXPECT_EQ(one.alternatives[0].spec.kernel, tl::Kernel::kDecode);
  EXPECT_EQ(one.alternatives[0].spec.cubes, 8);
  EXPECT_EQ(one.alternatives[1].spec.tile, 64);
  // Eight times as many PEs: what the document's threshold leaves on the table where nothing else runs.
  EXPECT_GT(sim::run(sim::ahbm_chip(), one.spec).ticks, 3 * sim::run(sim::ahbm_chip(), one.alternatives[0].spec).ticks);
}

TEST(SimDispatch, refuses_more_pes_than_there_are) {
  sim::Chip chip = sim::ahbm_chip();
  chip.pes = 4;
  EXPECT_THROW(dispatch_decode(chip, spec_of(1024), attention::kLongFrom), Error);
}

}  // namespace
}  // namespace coprime
