#include "tools/sim_milestone.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace coprime {
namespace {

TEST(Milestone, has_four_panels_and_all_gates_hold_on_the_chip_of_the_document) {
  const Milestone milestone =
      run_milestone(sim::ahbm_chip(), {.context = 16'384, .prompt = 256, .users = 4, .layers = 80});
  ASSERT_EQ(milestone.panels.size(), 4u);
  EXPECT_EQ(milestone.panels[0].name, "single_user prefill");
  EXPECT_EQ(milestone.panels[3].name, "multi_user decode");
  EXPECT_GE(milestone.verdicts.size(), 13u);
  for (const Verdict& verdict : milestone.verdicts)
    EXPECT_TRUE(verdict.holds) << verdict.gate << ": expected " << verdict.expected << ", found " << verdict.found;
  const Panel &one = milestone.panels[2], &all = milestone.panels[3];
  EXPECT_EQ(all.users, 4);
  EXPECT_EQ(all.one_by_one, 4 * one.result.ticks);
  EXPECT_LT(all.result.ticks, all.one_by_one);
  EXPECT_EQ(all.result.totals.pes.hbm_read, 4 * one.result.totals.pes.hbm_read);
}

// A chip on which issuing costs everything and products nothing has no use for opt3's order.
TEST(Milestone, gates_can_fail) {
  sim::Chip chip = sim::ahbm_chip();
  chip.pe.issue = {
      .load = 1, .store = 1, .composite = 1000, .ex_composite = 1, .dot = 1, .math = 1, .send = 1, .recv = 1};
  chip.pe.gemm.subtile_cycles = 1;
  chip.pe.dma.latency_ps = 0;
  const Milestone milestone = run_milestone(chip, {.context = 16'384, .prompt = 256, .users = 1, .layers = 1});
  EXPECT_FALSE(std::ranges::all_of(milestone.verdicts, &Verdict::holds));
  EXPECT_NE(milestone_table(milestone).find("FAILS"), std::string::npos);
}

}  // namespace
}  // namespace coprime
