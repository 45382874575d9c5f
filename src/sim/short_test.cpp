// Short contexts, the all-reduce and the baselines: data against f64 and exact sums, counts against closed forms.
#include <gtest/gtest.h>

#include "base/error.h"
#include "sim/run.h"
#include "sim/testing/attention_oracle.h"

namespace coprime::sim {
namespace {

using attention::ReduceTopology;
using tl::Kernel;

RunSpec short_decode(int owned, int64_t context, std::shared_ptr<const Inputs> inputs) {
  RunSpec spec;
  spec.kernel = Kernel::kDecodeShort;
  spec.kv_per_cube = owned;
  spec.context = context;
  spec.inputs = std::move(inputs);
  return spec;
}

void expect_attention(const RunSpec& spec, const RunResult& result) {
  ASSERT_EQ(result.outputs.size(), static_cast<size_t>(spec.kv_heads));
  for (int head = 0; head < spec.kv_heads; ++head) {
    const HeadOutput& output = result.outputs[static_cast<size_t>(head)];
    EXPECT_EQ(output.stores, 1);
    for (const int64_t row : {int64_t{0}, spec.rows - 1}) {
      const std::vector<double> expected = attend(*spec.inputs, head, row, spec.context, spec.d);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(double{output.o[static_cast<size_t>(row * spec.d) + i]}, expected[i], 2. / 256);
      }
    }
  }
}

TEST(ShortDecode, MatchesAttentionInF64) {
  for (const int owned : {1, 2, 4, 8}) {
    const RunSpec spec = short_decode(owned, 300, std::make_shared<CounterInputs>(2));
    expect_attention(spec, run(ahbm_chip(), spec));
  }
}

TEST(ShortDecode, SevenTripletsAHeadAndNoneBetweenCubes) {
  for (const int owned : {1, 2, 4, 8}) {
    for (const ReduceTopology topology : {ReduceTopology::kTree, ReduceTopology::kChain}) {
      RunSpec spec = short_decode(owned, 4096, nullptr);
      spec.within = topology;
      const RunResult result = run(ahbm_chip(), spec);
      EXPECT_EQ(result.rounds, owned * (topology == ReduceTopology::kTree ? 3 : 7));
      EXPECT_EQ(result.sends, 21);
      EXPECT_EQ(result.sends_total, 56 * 3);
      EXPECT_EQ(result.totals.levels[1].messages, 0u);
      EXPECT_EQ(result.pes, 8 / owned * 8);
    }
  }
}

TEST(ShortDecode, RefusesOtherCounts) { EXPECT_THROW(run(ahbm_chip(), short_decode(3, 64, nullptr)), Error); }

RunSpec all_reduce() {
  RunSpec spec;
  spec.kernel = Kernel::kAllReduce;
  spec.cubes = 16, spec.pes = 1;
  return spec;
}

TEST(AllReduce, EveryCubeHasTheExactSum) {
  RunSpec spec = all_reduce();
  spec.inputs = std::make_shared<CounterInputs>(3);  // multiples of 1/64 below 2: sums of 64 are exact
  const RunResult result = run(ahbm_chip(), spec);
  ASSERT_EQ(result.outputs.size(), 64u);
  for (int64_t row = 0; row < spec.rows; ++row) {
    std::vector<double> sum(static_cast<size_t>(spec.d));
    for (int cube = 0; cube < 64; ++cube) {
      const auto x = row_of([&](auto out) { spec.inputs->query(cube, row, out); }, spec.d);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];
    }
    for (const HeadOutput& output : result.outputs) {
      for (size_t i = 0; i < sum.size(); ++i)
        ASSERT_EQ(double{output.o[static_cast<size_t>(row * spec.d) + i]}, sum[i]);
    }
  }
}

TEST(AllReduce, FifteenMessagesUpAndDownAndThreeRoundsOverFourSips) {
  const RunResult result = run(ahbm_chip(), all_reduce());
  EXPECT_EQ(result.totals.levels[1].messages, 4u * (15 + 15));
  EXPECT_EQ(result.totals.levels[2].messages, 12u);
  EXPECT_EQ(result.rounds, 4 + 4 + 3);
  EXPECT_EQ(result.sends, result.sends_total);
}

TEST(Baselines, FanOutGivesEveryRankEveryState) {
  RunSpec spec;
  spec.kernel = Kernel::kFanOut;
  spec.kv_heads = 2, spec.context = 500;
  for (const int cubes : {1, 2, 8}) {
    spec.cubes = cubes;
    spec.inputs = std::make_shared<CounterInputs>(11);
    const RunResult result = run(ahbm_chip(), spec);
    expect_attention(spec, result);
    const int64_t ranks = cubes * 8;
    EXPECT_EQ(result.rounds, ranks - 1);
    EXPECT_EQ(result.sends, 3 * ranks * (ranks - 1));
    EXPECT_EQ(result.sends_total, 2 * result.sends);
    for (const LevelTotals& level : result.totals.levels) EXPECT_EQ(level.sent, level.byte_hops);  // single hops
  }
  EXPECT_EQ(run(ahbm_chip(), spec).sends, 12096);
}

TEST(Baselines, BlockingProductsMatchAttentionAndAreSlower) {
  RunSpec spec;
  spec.kernel = Kernel::kBlockingDot;
  spec.kv_heads = 2, spec.context = 700;
  spec.inputs = std::make_shared<CounterInputs>(12);
  expect_attention(spec, run(ahbm_chip(), spec));
  spec.inputs = nullptr;
  spec.context = 1 << 16;
  const Tick blocking = run(ahbm_chip(), spec).ticks;
  spec.kernel = Kernel::kDecode;
  EXPECT_LT(run(ahbm_chip(), spec).ticks, blocking);
}

TEST(Baselines, KvFanOutMovesTheKeysForEachQueryHead) {
  RunSpec spec;
  spec.kernel = Kernel::kKvFanOut;
  spec.kv_heads = 1, spec.context = 64 * 64;
  spec.query_rows = 64;  // each rank's rows in one pass
  const RunResult result = run(ahbm_chip(), spec);
  const uint64_t kv_bytes = 2ull * 64 * 128 * 2;  // of a rank
  EXPECT_EQ(result.totals.levels[0].sent + result.totals.levels[1].sent, 8 * 64 * 63 * kv_bytes);
  EXPECT_EQ(result.sends, result.sends_total);
}

TEST(GateG1, PackedHeadsDoNotConserveBytes) {
  RunSpec spec;
  spec.kernel = Kernel::kHeadPacking;
  spec.kv_heads = 1, spec.context = 512;
  try {
    run(ahbm_chip(), spec);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("elements are not"), std::string::npos) << error.what();
  }
  spec.rows = 1;  // one query head: what the old kernel was limited to
  run(ahbm_chip(), spec);
}

}  // namespace
}  // namespace coprime::sim
