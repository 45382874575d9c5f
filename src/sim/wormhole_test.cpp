// chips/wormhole-like.yaml against what was published of such a chip (tt-metal's tech reports). One value is fitted,
// the DRAM's latency, to 92 % of the peak with two reads in flight; the rest are predictions.
//
// 64 cores share 288 GB/s here by giving each its share: the model has no DRAM banks that cores compete for. Times are
// halved and rates doubled, so that a 64th of the rate is a whole number.
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/chip_file.h"
#include "sim/run.h"

namespace coprime::sim {
namespace {

using attention::ReduceTopology;

Chip wormhole() { return read_chip(std::filesystem::path(COPRIME_SOURCE_DIR) / "chips/wormhole-like.yaml").chip; }

// Of the rate of one bank, where nothing but DRAM takes time.
double fraction_of_peak(int64_t reads_in_flight) {
  Chip chip = wormhole();
  chip.pe.dma.reads_in_flight = reads_in_flight;
  chip.pe.dma.stages = 2 * reads_in_flight;
  chip.pe.gemm.subtile_cycles = 1;
  chip.pe.gemm.fill_cycles = chip.pe.gemm.drain_cycles = 0;
  chip.pe.math = {.lanes = 65536, .fill_cycles = 0, .exp_cost = 1, .queue_depth = 64, .blocking = false};
  chip.pe.gemm.composite_depth = 64;
  chip.pe.issue = {};
  RunSpec spec;
  spec.cubes = spec.pes = spec.kv_heads = 1;
  spec.variant = tl::DecodeVariant::kOpt2;
  spec.tile = 512;
  const auto ticks = [&](int64_t tokens) {
    spec.context = tokens;
    return static_cast<double>(run(chip, spec).ticks);
  };
  const double bytes = 32'768 * 2 * 2 * 128;
  return bytes * 1000 / (ticks(65'536) - ticks(32'768)) / static_cast<double>(chip.pe.dma.hbm_gb_s);
}

TEST(WormholeLike, reads_92_percent_of_the_peak_with_two_reads_in_flight_and_half_with_one) {
  EXPECT_NEAR(fraction_of_peak(2), 0.92, 0.002);  // fitted
  EXPECT_NEAR(fraction_of_peak(1), 0.46, 0.002);  // predicted: a clear loss
  EXPECT_NEAR(fraction_of_peak(4), 1.00, 0.002);  // predicted; nothing published
}

constexpr std::array kCores = {1, 2, 4, 8, 16, 32, 64};

// us of decode of one head on so many of 64 cores, by kCores.
std::vector<double> decode_us(ReduceTopology topology, int64_t context) {
  std::vector<double> us;
  for (const int cores : kCores) {
    Chip chip = wormhole();
    chip.pe.ps_per_cycle /= 2;
    chip.pe.dma.latency_ps /= 2;
    chip.pe.dma.hbm_gb_s = std::min<int64_t>(2 * chip.pe.dma.hbm_gb_s, 2 * 288 / cores);
    chip.ipcq.cube.gb_s *= 2;
    chip.ipcq.cube.hop_ps /= 2;
    RunSpec spec;
    spec.cubes = cores;
    spec.pes = spec.kv_heads = 1;
    spec.variant = tl::DecodeVariant::kOpt1;
    spec.tile = 128;
    spec.context = context;
    spec.across = topology;
    us.push_back(static_cast<double>(run(chip, spec).ticks) / 1e6 * 2);
  }
  return us;
}
int best_of(const std::vector<double>& us) {
  return kCores[static_cast<size_t>(std::ranges::min_element(us) - us.begin())];
}

TEST(WormholeLike, star_gather_is_best_on_16_of_64_cores_and_slower_on_all) {
  for (const int64_t context : {4096, 8192, 16'384}) {
    const std::vector<double> star = decode_us(ReduceTopology::kStar, context);
    EXPECT_EQ(best_of(star), 16) << context;
    EXPECT_GT(star.back(), 1.3 * star[4]) << context;
  }
  EXPECT_EQ(best_of(decode_us(ReduceTopology::kStar, 32'768)), 32);  // the sweep grows, the gather does not
}

TEST(WormholeLike, tree_has_no_knee) {
  for (const int64_t context : {16'384, 32'768, 65'536}) {
    const std::vector<double> tree = decode_us(ReduceTopology::kTree, context);
    EXPECT_TRUE(std::ranges::is_sorted(tree, std::greater())) << context;
  }
  EXPECT_LT(decode_us(ReduceTopology::kTree, 8192).back(), 24);
  EXPECT_GT(decode_us(ReduceTopology::kStar, 8192).back(), 58);
}

}  // namespace
}  // namespace coprime::sim
