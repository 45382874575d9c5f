// Long runs: random sizes and delays, eager calls and two graphs in turns; every sum is compared on the GPU, and all
// ranks' hashes with each other. COPRIME_SOAK_CALLS sets the number of calls.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/clock.h"
#include "gpu_ranks.h"

namespace coprime {
namespace {

using namespace testing;

uint32_t soak_calls() {
  const char* const text = std::getenv("COPRIME_SOAK_CALLS");
  return text == nullptr ? 10'000 : static_cast<uint32_t>(std::atol(text));
}

struct SoakCase {
  int ranks;
  const char* row;
  uint32_t share;  // of the calls: one in so many
  uint32_t most_delay_ns;
};

class GpuSoak : public ::testing::TestWithParam<SoakCase> {};

TEST_P(GpuSoak, every_sum_is_right_on_all_ranks) {
  const SoakCase c = GetParam();
  const uint32_t calls = soak_calls() / c.share;
  std::vector<SoakTally> tallies(static_cast<size_t>(c.ranks));
  const int64_t begin_us = now_us();
  run_gpu_threads(c.ranks, test_settings(c.ranks), [&](GpuRank& rank) {
    load_soak_kernels(rank);
    const auto step = [&](uint32_t call) {
      SoakCall soak = soak_call(rank, call, 8 * 1024, c.most_delay_ns);
      soak.words = std::max<int64_t>(soak.words, std::string_view(c.row) == "two_shot" ? 1024 : 1);
      enqueue(rank, {soak, c.row});
    };
    constexpr uint32_t kInGraph = 101;
    const auto graph = [&](uint32_t first) {
      return CudaGraph(rank.stream, [&] {
        for (uint32_t call = first; call < first + kInGraph; ++call) step(call);
      });
    };
    const CudaGraph a = graph(1u << 30), b = graph(1u << 31);
    rank.board.barrier();
    for (uint32_t call = 0; call < calls;) {
      a.launch(rank.stream);
      b.launch(rank.stream);
      a.launch(rank.stream);
      for (uint32_t i = 0; i < 20; ++i) step(call + i);
      call += 3 * kInGraph + 20;
      if (call % 8 == 0) rank.stream.synchronize();
      rank.reduce.check();
    }
    tallies[static_cast<size_t>(rank.rank())] = rank.read_tally();
    rank.reduce.check();
  });
  std::printf("soak: %d ranks, %s, %u calls, delays to %u us: %.1f s\n", c.ranks, c.row, calls, c.most_delay_ns / 1000,
              static_cast<double>(now_us() - begin_us) / 1e6);
  for (const SoakTally& tally : tallies) {
    EXPECT_EQ(tally.wrong, 0u);
    EXPECT_EQ(tally.hash, tallies[0].hash);
  }
}
INSTANTIATE_TEST_SUITE_P(rows, GpuSoak,
                         ::testing::Values(SoakCase{3, "push", 1, 50'000}, SoakCase{4, "push", 1, 50'000},
                                           SoakCase{2, "push", 10, 50'000}, SoakCase{3, "two_shot", 10, 50'000},
                                           SoakCase{4, "two_shot", 10, 50'000}, SoakCase{3, "flags", 10, 50'000},
                                           SoakCase{4, "flags", 10, 50'000}, SoakCase{3, "push", 1000, 10'000'000}));

}  // namespace
}  // namespace coprime
