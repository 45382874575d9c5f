// Several users at once: each gets what it would get alone, and together they take less than one after another.
#include <gtest/gtest.h>

#include "base/error.h"
#include "sim/run.h"
#include "sim/testing/attention_oracle.h"
#include "sim/testing/random_cases.h"

namespace coprime::sim {
namespace {

using tl::Kernel;

RunSpec spec_of(Kernel kernel, int users) {
  RunSpec spec;
  spec.kernel = kernel, spec.users = users;
  spec.cubes = 2, spec.pes = 8, spec.kv_heads = 2, spec.rows = 2;
  spec.d = 32, spec.tile = 8, spec.query_rows = 16;
  spec.context = 300;
  return spec;
}

// The keys of user u's heads are those of heads 2 u and 2 u + 1.
TEST(Users, EachGetsTheAttentionOfItsOwnKeys) {
  for (const Kernel kernel : {Kernel::kDecode, Kernel::kPrefill}) {
    for (const int cubes : {1, 2}) {
      RunSpec spec = spec_of(kernel, 3);
      spec.cubes = cubes;
      if (cubes == 1 && kernel == Kernel::kPrefill) spec.pes = 1;
      spec.inputs = std::make_shared<CounterInputs>(21);
      const RunResult result = run(ahbm_chip(), spec);
      ASSERT_EQ(result.outputs.size(), 6u);
      const int64_t positions = kernel == Kernel::kDecode ? 1 : spec.context;
      for (int head = 0; head < 6; ++head) {
        const HeadOutput& output = result.outputs[static_cast<size_t>(head)];
        ASSERT_EQ(output.o.size(), static_cast<size_t>(positions * spec.rows * spec.d));
        for (const int64_t row : {int64_t{0}, positions * spec.rows - 1}) {
          const int64_t keys = kernel == Kernel::kDecode ? spec.context : row / spec.rows + 1;
          const std::vector<double> expected = attend(*spec.inputs, head, row, keys, spec.d);
          for (size_t i = 0; i < expected.size(); ++i)
            ASSERT_NEAR(double{output.o[static_cast<size_t>(row * spec.d) + i]}, expected[i], 2. / 256)
                << name_of(kernel) << " head " << head << " row " << row;
        }
      }
    }
  }
}

TEST(Users, TakeLessAtOnceThanOneAfterAnother) {
  for (const int64_t context : {4096, 65536}) {
    RunSpec spec;
    spec.context = context;
    const RunResult alone = run(ahbm_chip(), spec);
    spec.users = 8;
    const RunResult all = run(ahbm_chip(), spec);
    EXPECT_LT(all.ticks, 8 * alone.ticks);
    EXPECT_GE(all.ticks, all.bounds.front().ticks);
    EXPECT_EQ(all.sends_total, 8 * alone.sends_total);
    EXPECT_EQ(all.sends, 8 * alone.sends);
    EXPECT_EQ(all.rounds, alone.rounds);
    EXPECT_EQ(all.totals.pes.macs, 8 * alone.totals.pes.macs);
    EXPECT_EQ(all.totals.pes.hbm_read, 8 * alone.totals.pes.hbm_read);
  }
}

// Requests begin on different ranks, so that those with few keys do not all load the same PEs.
TEST(Users, HaveTheirKeysInDifferentPlaces) {
  RunSpec spec;
  spec.context = 4096, spec.largest_context = 65536, spec.users = 16;  // 4 of 64 ranks have keys
  const Tick rotated = run(ahbm_chip(), spec).ticks;
  tl::Launch launch = tl::make_launch({4, {4, 4}, {2, 4}}, spec);
  for (tl::Program& program : launch.programs) {  // all users as the first
    for (tl::Part& part : program.parts) {
      auto& requests = std::get<tl::RequestsArgs>(part.args).requests;
      for (tl::RequestArgs& request : requests)
        std::get<tl::DecodeArgs>(request).tokens = std::get<tl::DecodeArgs>(requests[0]).tokens;
    }
  }
  EXPECT_LT(rotated, run_launch(ahbm_chip(), spec, launch).ticks);
}

TEST(Users, TakeAsLongInClosedFormAsByEvents) {
  testing::RandomCases cases(91);
  for (int i = 0; i < 200; ++i) {
    testing::Case one = i % 2 == 0 ? cases.next() : cases.next_of_any_kernel();
    if (one.spec.kernel != Kernel::kDecode && one.spec.kernel != Kernel::kPrefill) continue;
    one.spec.users = 2 + i % 3;
    one.chip.contention = i % 4 < 2;
    const RunResult fast = run(one.chip, one.spec);
    one.spec.forward = false;
    const RunResult slow = run(one.chip, one.spec);
    EXPECT_EQ(fast.ticks, slow.ticks) << i;
    EXPECT_EQ(fast.path, slow.path) << i;
    EXPECT_EQ(fast.totals.pes.issued, slow.totals.pes.issued) << i;
  }
}

TEST(Users, AreAtLeastOne) {
  RunSpec spec = spec_of(Kernel::kDecode, 0);
  EXPECT_THROW(run(ahbm_chip(), spec), Error);
}

}  // namespace
}  // namespace coprime::sim
