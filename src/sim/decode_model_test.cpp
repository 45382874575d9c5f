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

TEST(DecodeModel, periods_hold_in_the_named_setting) {
  for (const Chip& chip : {gemm_bound(), math_bound()}) {
    for (const auto variant : kBoth) {
      const auto expected = static_cast<double>(tile_period(chip, one_rank(variant, 1)).ticks(variant));
      EXPECT_NEAR(measured_period(chip, variant) / expected, 1, 1e-3) << static_cast<int>(variant);
    }
  }
}

TEST(DecodeModel, gain_of_opt3_over_opt1_is_min_T1_Ts_in_the_named_setting) {
  for (const Chip& chip : {gemm_bound(), math_bound()}) {
    const TilePeriod period = tile_period(chip, one_rank(tl::DecodeVariant::kOpt1, 1));
    const auto gain = static_cast<double>(std::min(std::max(period.dma_k, period.gemm_qk), period.softmax));
    const double measured =
        measured_period(chip, tl::DecodeVariant::kOpt1) - measured_period(chip, tl::DecodeVariant::kOpt3);
    EXPECT_NEAR(measured / gain, 1, 1e-3);
  }
}

TEST(DecodeModel, opt2_takes_the_busiest_engine_s_time) {
  for (const Chip& chip : {gemm_bound(), math_bound()}) {
    const auto expected =
        static_cast<double>(tile_period(chip, one_rank(tl::DecodeVariant::kOpt2, 1)).ticks(tl::DecodeVariant::kOpt2));
    EXPECT_NEAR(measured_period(chip, tl::DecodeVariant::kOpt2) / expected, 1, 1e-3);
  }
}

// Elsewhere they bound: transfers of a tile run ahead of its products, and sub-tiles overlap.
TEST(DecodeModel, pipelines_beat_the_periods_where_a_transfer_overlaps) {
  Chip chip = named_setting();
  chip.pe.dma.hbm_gb_s = 64;
  chip.pe.gemm.subtile_cycles = 60;
  const auto period =
      static_cast<double>(tile_period(chip, one_rank(tl::DecodeVariant::kOpt3v, 1)).ticks(tl::DecodeVariant::kOpt3v));
  const double opt3 = measured_period(chip, tl::DecodeVariant::kOpt3);
  const auto form =
      static_cast<double>(tile_period(chip, one_rank(tl::DecodeVariant::kOpt3, 1)).ticks(tl::DecodeVariant::kOpt3));
  EXPECT_LT(opt3, form);
  EXPECT_LE(measured_period(chip, tl::DecodeVariant::kOpt3v), period * 1.001);
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
