// GPU ranks that do not come, as threads: who waits says so in time, ends without a sum, and goes on after a rebuild.
#include <gtest/gtest.h>

#include "base/clock.h"
#include "gpu_ranks.h"

namespace coprime {
namespace {

using namespace testing;

constexpr int kTimeoutMs = 200, kSlackMs = 100;

std::string error_of(const GpuRank& rank) {
  try {
    rank.reduce.check();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kLink);
    return error.what();
  }
  return "";
}

void run_right_calls(GpuRank& rank, uint32_t calls) {
  rank.board.barrier();
  for (uint32_t call = 0; call < calls; ++call) enqueue(rank, {soak_call(rank, call, 4096, 2'000), "push"});
  const SoakTally tally = rank.read_tally();
  EXPECT_EQ(error_of(rank), "");
  EXPECT_EQ(tally.wrong, 0u);
}

class GpuFailures : public ::testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(GpuFailures, a_missing_launch_is_named_by_all_others_in_time_and_a_rebuild_heals_it) {
  const auto [ranks, graphs] = GetParam();
  run_gpu_threads(ranks, test_settings(ranks, kTimeoutMs), [&, ranks = ranks, graphs = graphs](GpuRank& rank) {
    load_soak_kernels(rank);
    for (const std::string_view row : {"push", "flags", "two_shot"}) {
      if (row == "two_shot" && ranks == 2) continue;
      const auto enqueue_some = [&](uint32_t calls) {
        for (uint32_t call = 0; call < calls; ++call) {
          SoakCall soak = soak_call(rank, call, 4096, 0);
          soak.words = std::max<int64_t>(soak.words, 1024);
          enqueue(rank, {soak, row});
        }
      };
      const bool late = rank.rank() == ranks - 1;
      const auto out_bytes = [&] {
        std::vector<std::byte> bytes(16 * 1024);
        check_cuda(cudaMemcpy(bytes.data(), rank.out.data(), bytes.size(), cudaMemcpyDeviceToHost), "download");
        return bytes;
      };
      const CudaGraph graph(rank.stream, [&] { enqueue_some(5); });
      rank.board.barrier();
      enqueue_some(3);
      rank.stream.synchronize();
      rank.board.barrier();
      const uint64_t bail_outs = rank.reduce.bail_outs();
      const std::vector<std::byte> before = out_bytes();
      rank.board.barrier();
      const int64_t begin_us = now_us();
      if (!late) {
        graphs ? graph.launch(rank.stream) : enqueue_some(5);
        rank.stream.synchronize();  // the context is usable
        const int64_t took_ms = (now_us() - begin_us) / 1000;
        const std::string error = error_of(rank);
        EXPECT_NE(error.find(fmt::format("for rank {}", ranks - 1)), std::string::npos) << error;
        EXPECT_GE(took_ms, kTimeoutMs - 5);
        EXPECT_LE(took_ms, kTimeoutMs + kSlackMs) << "rank " << rank.rank() << ", " << row;
        EXPECT_EQ(rank.reduce.bail_outs(), bail_outs + 5);
        EXPECT_EQ(error_of(rank), error);  // it sticks
        EXPECT_EQ(out_bytes(), before);    // nothing was summed
      }
      rank.board.barrier();
      if (late) {  // its own call ends at once, with the word that the others left
        enqueue_some(1);
        rank.stream.synchronize();
        EXPECT_LE((now_us() - begin_us) / 1000, 3 * kTimeoutMs);
        EXPECT_NE(error_of(rank).find(fmt::format("waiting for rank {}", ranks - 1)), std::string::npos)
            << error_of(rank);
      }
      rank.reduce.rebuild(rank.board);
      check_cuda(cudaMemset(rank.tally.data(), 0, sizeof(SoakTally)), "clear a tally");
      check_cuda(cudaDeviceSynchronize(), "clear a tally");
      run_right_calls(rank, 10'000);
    }
    EXPECT_EQ(rank.reduce.epoch(), ranks == 2 ? 3u : 4u);
  });
}
INSTANTIATE_TEST_SUITE_P(worlds, GpuFailures, ::testing::Combine(::testing::Values(2, 3), ::testing::Bool()));

}  // namespace
}  // namespace coprime
