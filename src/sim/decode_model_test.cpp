// A3's periods, in the setting that they assume: MATH blocks the CPU, issuing costs nothing, engines have no fill, and
// in each product either the transfer or the multiplication is all that takes time (so that it is one piece).
#include "sim/decode_model.h"

#include <gtest/gtest.h>

#include <cmath>

namespace coprime::sim {
namespace {

Chip named_setting() {
  Chip chip = ahbm_chip();
  chip.contention = false;
  chip.pe.issue = {};
  chip.pe.math.blocking = true;
  chip.pe.math.fill_cycles = chip.pe.gemm.fill_cycles = chip.pe.gemm.drain_cycles = 0;
  chip.pe.gemm.composite_depth = 64;
  chip.pe.dma.latency_ps = 0;
  return chip;
}
Chip gemm_bound() {
  Chip chip = named_setting();
  chip.pe.dma.hbm_gb_s = 1'000'000;
  chip.pe.gemm.subtile_cycles = 400;
  return chip;
}
Chip math_bound() {
  Chip chip = gemm_bound();
  chip.pe.gemm.subtile_cycles = 10;
  chip.pe.math.lanes = 4;
  return chip;
}

RunSpec one_rank(tl::DecodeVariant variant, int64_t tiles) {
  RunSpec spec;
  spec.variant = variant;
  spec.cubes = spec.pes = spec.kv_heads = 1;
  spec.tile = 64;
  spec.context = 64 * tiles;
  return spec;
}

double measured_period(Chip chip, tl::DecodeVariant variant) {
  chip.pes = 1;
  const auto ticks = [&](int64_t tiles) { return static_cast<double>(run(chip, one_rank(variant, tiles)).ticks); };
  return (ticks(200) - ticks(100)) / 100;
}

constexpr std::array kBoth = {tl::DecodeVariant::kOpt1, tl::DecodeVariant::kOpt3};
constexpr double kFirstFetches = 16;  // ticks: what those of K and V take here, where A3 has nothing

TEST(DecodeModel, periods_hold_in_the_named_setting) {
  for (const Chip& chip : {gemm_bound(), math_bound()}) {
    for (const auto variant : kBoth) {
      const auto expected = static_cast<double>(tile_period(chip, one_rank(variant, 1)).ticks(variant));
      EXPECT_NEAR(measured_period(chip, variant), expected, kFirstFetches) << static_cast<int>(variant);
    }
  }
}

TEST(DecodeModel, gain_of_opt3_over_opt1_is_min_T1_Ts_in_the_named_setting) {
  for (const Chip& chip : {gemm_bound(), math_bound()}) {
    const TilePeriod period = tile_period(chip, one_rank(tl::DecodeVariant::kOpt1, 1));
    const auto gain = static_cast<double>(std::min(std::max(period.dma_k, period.gemm_qk), period.softmax));
    const double measured =
        measured_period(chip, tl::DecodeVariant::kOpt1) - measured_period(chip, tl::DecodeVariant::kOpt3);
    EXPECT_NEAR(measured, gain, kFirstFetches);
  }
}

TEST(DecodeModel, opt2_takes_the_busiest_engine_s_time) {
  for (const Chip& chip : {gemm_bound(), math_bound()}) {
    const auto expected =
        static_cast<double>(tile_period(chip, one_rank(tl::DecodeVariant::kOpt2, 1)).ticks(tl::DecodeVariant::kOpt2));
    EXPECT_EQ(measured_period(chip, tl::DecodeVariant::kOpt2), expected);
  }
}

// A3's own forms, with all of Ta behind T2, bound it there from above.
TEST(DecodeModel, update_runs_half_beside_the_product) {
  for (const Chip& chip : {gemm_bound(), math_bound()}) {
    const TilePeriod p = tile_period(chip, one_rank(tl::DecodeVariant::kOpt1, 1));
    const Tick form = std::max(p.dma_k, p.gemm_qk) + p.softmax + std::max(p.dma_v, p.gemm_pv) + p.update;
    const auto saved = static_cast<double>(std::min(std::max(p.dma_v, p.gemm_pv), p.update / 2));
    EXPECT_NEAR(static_cast<double>(form) - measured_period(chip, tl::DecodeVariant::kOpt1), saved, kFirstFetches);
  }
}

// Elsewhere they are bounds that the pipeline beats: here V comes while the next scores are multiplied.
TEST(DecodeModel, a_pipeline_beats_the_period_where_a_transfer_runs_beside_another_product) {
  Chip chip = named_setting();
  chip.pes = 1;
  chip.pe.gemm.tile_k = 8;
  chip.pe.gemm.tile_n = 128;
  chip.pe.gemm.subtile_cycles = 100;
  chip.pe.dma.hbm_gb_s = 3;
  chip.pe.math.lanes = 8;
  const auto of = [&](int64_t tiles) {
    RunSpec spec = one_rank(tl::DecodeVariant::kOpt3, tiles);
    spec.tile = 8;
    spec.context = 8 * tiles;
    return spec;
  };
  const TilePeriod period = tile_period(chip, of(1));
  ASSERT_GT(period.gemm_qk, period.dma_k);
  ASSERT_GT(period.dma_v, period.gemm_pv);
  const double measured = static_cast<double>(run(chip, of(200)).ticks - run(chip, of(100)).ticks) / 100;
  EXPECT_LT(measured, 0.85 * static_cast<double>(period.ticks(tl::DecodeVariant::kOpt3)));
}

// With few requests in flight, or few stages, the latency is what a tile takes.
TEST(DecodeModel, knows_what_a_shallow_dma_costs) {
  for (const auto variant : {tl::DecodeVariant::kOpt1, tl::DecodeVariant::kOpt3, tl::DecodeVariant::kOpt2}) {
    for (const int64_t depth : {1, 2, 4, 8}) {
      Chip chip = ahbm_chip();
      chip.pe.dma.reads_in_flight = depth;
      const auto expected = static_cast<double>(tile_period(chip, one_rank(variant, 1)).ticks(variant));
      EXPECT_NEAR(measured_period(chip, variant) / expected, 1, 0.15) << static_cast<int>(variant) << " " << depth;
    }
    Chip chip = ahbm_chip();
    chip.pe.dma.stages = 1;
    const auto expected = static_cast<double>(tile_period(chip, one_rank(variant, 1)).ticks(variant));
    EXPECT_NEAR(measured_period(chip, variant) / expected, 1, 0.15) << static_cast<int>(variant) << " one stage";
  }
}

TEST(DecodeModel, issues_alone_bound_a_fast_chip) {
  Chip chip = gemm_bound();
  chip.pe.gemm.subtile_cycles = 1;
  chip.pe.math.lanes = 65536;
  chip.pe.math.blocking = false;
  chip.pe.issue.composite = 400;
  chip.pe.issue.math = 80;
  const auto opt3 = static_cast<double>(2 * 400'000 + 11 * 80'000);
  EXPECT_NEAR(measured_period(chip, tl::DecodeVariant::kOpt3) / opt3, 1, 0.02);
  chip.pe.issue.ex_composite = 400;
  EXPECT_NEAR(measured_period(chip, tl::DecodeVariant::kOpt2), 800'000, 1);
}

}  // namespace
}  // namespace coprime::sim
