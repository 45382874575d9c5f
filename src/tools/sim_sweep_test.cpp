#include "tools/sim_sweep.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "tools/sim_knockout.h"

namespace coprime {
namespace {

sim::RunSpec small() {
  sim::RunSpec spec;
  spec.context = 16'384;
  spec.kv_heads = 1;
  return spec;
}

std::string told(std::string_view axis) {
  try {
    run_sweep(sim::ahbm_chip(), small(), parse_sweep_axes(axis));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "accepted";
}

TEST(Sweep, runs_every_combination_and_says_which_is_fastest) {
  const Sweep sweep = run_sweep(sim::ahbm_chip(), small(), parse_sweep_axes("cubes=1,8,topology=chain,tree"));
  ASSERT_EQ(sweep.points.size(), 4u);
  EXPECT_EQ(sweep.points[1].values, (std::vector<std::string>{"1", "tree"}));
  EXPECT_EQ(sweep.points[3].result.rounds, 6);
  EXPECT_EQ(sweep.points[2].result.rounds, 14);
  sim::RunSpec spec = small();
  spec.within = spec.across = attention::ReduceTopology::kTree;
  EXPECT_EQ(sweep.points[3].result.ticks, sim::run(sim::ahbm_chip(), spec).ticks);
  const std::string table = sweep_table(sweep);
  EXPECT_NE(table.find("fastest\n  cubes 1 to 8: tree\n"), std::string::npos) << table;
}

TEST(Sweep, of_a_value_of_the_chip_changes_it) {
  const Sweep sweep = run_sweep(sim::ahbm_chip(), small(), parse_sweep_axes("pe.dma.hbm_gb_s=8,256"));
  EXPECT_GT(sweep.points[0].result.ticks, 4 * sweep.points[1].result.ticks);
}

TEST(Sweep, keeps_what_cannot_be_placed_as_a_refusal) {
  const Sweep sweep = run_sweep(sim::ahbm_chip(), small(), parse_sweep_axes("cubes=5,8"));
  EXPECT_NE(sweep.points[0].refusal.find("a group of 5 CUBEs is no rectangle"), std::string::npos);
  EXPECT_TRUE(sweep.points[1].refusal.empty());
  EXPECT_NE(sweep_table(sweep).find("a group of 5 CUBEs"), std::string::npos);
}

TEST(Sweep, counts_the_refused_runs_and_fails_where_none_could_be_done) {
  const Sweep some = run_sweep(sim::ahbm_chip(), small(), parse_sweep_axes("cubes=5,8"));
  EXPECT_NO_THROW(check_any_ran(some));
  EXPECT_NE(sweep_table(some).find("1 of 2 runs could not be done"), std::string::npos);
  const Sweep none = run_sweep(sim::ahbm_chip(), small(), parse_sweep_axes("cubes=5,7,tile=32,64"));
  try {
    check_any_ran(none);
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_NE(text.find("none of the 4 runs"), std::string::npos) << text;
    EXPECT_NE(text.find("cubes 5, tile 32: a group of 5 CUBEs"), std::string::npos) << text;
    EXPECT_NE(text.find("cubes 7, tile 32: a group of 7 CUBEs"), std::string::npos) << text;
  }
}

// Over two PEs every topology is one message.
TEST(Sweep, names_all_that_are_as_fast) {
  sim::RunSpec spec = small();
  spec.cubes = 1;
  const Sweep sweep = run_sweep(sim::ahbm_chip(), spec, parse_sweep_axes("pes=2,8,within=tree,chain,star"));
  const std::string table = sweep_table(sweep);
  EXPECT_NE(table.find("fastest\n  pes 2: tree and chain and star\n  pes 8: tree\n"), std::string::npos) << table;
}

TEST(Sweep, refuses_a_quantity_that_no_kernel_of_it_takes) {
  sim::RunSpec spec = small();
  spec.kernel = tl::Kernel::kPrefill;
  EXPECT_THROW(run_sweep(sim::ahbm_chip(), spec, parse_sweep_axes("variant=opt1,opt3")), Error);
  spec.kernel = tl::Kernel::kDecodeShort;
  EXPECT_THROW(run_sweep(sim::ahbm_chip(), spec, parse_sweep_axes("cubes=1,2")), Error);
  const Sweep both = run_sweep(sim::ahbm_chip(), spec, parse_sweep_axes("kernel=decode,decode-short,cubes=1,2"));
  EXPECT_EQ(both.points.size(), 4u);
}

TEST(Sweep, tells_how_far_it_is) {
  size_t last = 0, of = 0;
  run_sweep(sim::ahbm_chip(), small(), parse_sweep_axes("tile=32,64,128"), [&](size_t run, size_t runs) {
    EXPECT_GE(run, last);
    last = run, of = runs;
  });
  EXPECT_EQ(last, 2u);
  EXPECT_EQ(of, 3u);
}

TEST(Sweep, draws_what_was_simulated_and_the_formula_beside_it) {
  const Sweep sweep = run_sweep(sim::ahbm_chip(), small(), parse_sweep_axes("context=8K,16K,variant=opt1,opt2"));
  const std::string svg = sweep_svg(sweep, "a chip");
  EXPECT_NE(svg.find(">opt2, formula</text>"), std::string::npos);
  EXPECT_NE(svg.find(">16K</text>"), std::string::npos);
}

TEST(Sweep, refuses_what_is_no_quantity_or_no_value) {
  EXPECT_NE(told("speed").find("--over speed: expected kernel, variant, context"), std::string::npos);
  EXPECT_NE(told("cubes=none").find("cubes: expected a number from 1 to 1024"), std::string::npos);
  EXPECT_NE(told("topology=bush").find("expected tree, mesh, chain, ring or star; found bush"), std::string::npos);
  EXPECT_NE(told("variant=").find("expected opt1, opt3, opt3v or opt2"), std::string::npos);
  EXPECT_NE(told("pe.dma.stages").find("say over which values"), std::string::npos);
  EXPECT_NE(told("pe.dma.stages=0").find("pe.dma.stages of the chip: expected a whole number from 1"),
            std::string::npos);
}

// No chip is slower for one resource made ideal, and the one that binds gains most.
TEST(Knockout, never_loses_and_finds_what_binds) {
  sim::Chip slow_memory = sim::ahbm_chip();
  slow_memory.pe.dma.hbm_gb_s = 8;
  const auto knockouts = run_knockouts(slow_memory, small());
  EXPECT_EQ(knockouts.front().resource, "none");
  const auto fastest = std::ranges::min_element(knockouts, {}, &Knockout::ticks);
  EXPECT_EQ(fastest->resource, "HBM rate");
  for (const Knockout& knockout : knockouts) EXPECT_LE(knockout.ticks, knockouts.front().ticks) << knockout.resource;
  EXPECT_NE(knockout_table(knockouts).find("HBM rate"), std::string::npos);
}

}  // namespace
}  // namespace coprime
