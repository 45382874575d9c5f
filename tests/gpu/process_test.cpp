// GPU ranks as processes over CUDA IPC. This process itself never touches CUDA: its children could not after a fork.
#include <gtest/gtest.h>

#include <csignal>

#include "base/clock.h"
#include "gpu_ranks.h"

namespace coprime {
namespace {

using namespace testing;

constexpr int kTimeoutMs = 1500, kSlackMs = 100;  // ranks of one GPU take turns: a call can take many milliseconds

// Right calls of any row; the number of wrong words, or -1 for an error.
int64_t run_calls(GpuRank& rank, std::string_view row, uint32_t calls, int64_t most_words) {
  for (uint32_t call = 0; call < calls; ++call) {
    SoakCall soak = soak_call(rank, call, most_words, 0);
    soak.words = std::max<int64_t>(soak.words, 1024);
    enqueue(rank, {soak, row});
  }
  const SoakTally tally = rank.read_tally();
  rank.reduce.check();
  const std::vector<SoakTally> all = rank.board.exchange(tally);
  for (const SoakTally& other : all) {
    if (other.hash != tally.hash) return -1;
  }
  return static_cast<int64_t>(tally.wrong);
}

TEST(GpuProcesses, sum_right_over_ipc_and_hold_the_same_bits) {
  for (const int ranks : {2, 3, 4}) {
    const auto region = RankBoard::make_region(ranks);
    const auto statuses = run_processes(ranks, [&](int rank) {
      GpuRank gpu_rank(region, rank, test_settings(ranks));
      load_soak_kernels(gpu_rank);
      for (const std::string_view row : {"push", "two_shot", "flags"}) {
        if (row == "two_shot" && ranks == 2) continue;
        const int64_t begin_us = now_us();
        if (run_calls(gpu_rank, row, row == "push" ? 2000 : 300, 64 * 1024) != 0) return 1;
        if (rank == 0)
          std::printf("%d processes, %s: %.1f s\n", ranks, row.data(), static_cast<double>(now_us() - begin_us) / 1e6);
      }
      return 0;
    });
    EXPECT_EQ(statuses, std::vector<int>(static_cast<size_t>(ranks)));
  }
}

// A stopped rank of an old epoch keeps its mapping, and may push when it wakes up.
TEST(GpuProcesses, what_is_pushed_into_a_slab_that_its_owner_let_go_meets_no_new_one) {
  const auto region = RankBoard::make_region(2);
  const auto statuses = run_processes(2, [&](int rank) {
    RankBoard board(region, rank, 20'000);
    use_gpu(rank % count_gpus());
    constexpr size_t kBytes = 32 * kMiB;
    DeviceMemory slab(kBytes);
    const MemoryOffer offer = board.exchange(offer_memory(slab))[0];
    if (rank == 1) {
      const PeerMemory old(offer);
      board.barrier();
      board.barrier();  // the owner has a new slab
      check_cuda(cudaMemset(old.data(), 0xff, kBytes), "write to an old slab");
      check_cuda(cudaDeviceSynchronize(), "write to an old slab");
      board.barrier();
      return 0;
    }
    board.barrier();
    slab = DeviceMemory();
    slab = DeviceMemory(kBytes);
    check_cuda(cudaMemset(slab.data(), 0, kBytes), "clear a slab");
    check_cuda(cudaDeviceSynchronize(), "clear a slab");
    board.barrier();
    board.barrier();
    std::vector<std::byte> found(kBytes);
    check_cuda(cudaMemcpy(found.data(), slab.data(), kBytes, cudaMemcpyDeviceToHost), "read a slab");
    return found == std::vector<std::byte>(kBytes) ? 0 : 1;
  });
  EXPECT_EQ(statuses, std::vector<int>(2));
}

// Ranks of one GPU take turns, which takes long.
uint32_t calls_after_rebuild(int ranks) { return ranks <= count_gpus() ? 10'000 : 1000; }

// What a survivor does: calls until the error, which must name `dead`; then a rebuild with a rank that takes its place.
int survive(const std::shared_ptr<const ShmRegion>& first, const std::shared_ptr<const ShmRegion>& second, int rank,
            int ranks, int dead, bool graphs, int running) {
  GpuRank gpu_rank(first, rank, test_settings(ranks, kTimeoutMs));
  load_soak_kernels(gpu_rank);
  const auto enqueue_some = [&] {
    for (uint32_t call = 0; call < 10; ++call) {
      SoakCall soak = soak_call(gpu_rank, call, 4096, 0);
      enqueue(gpu_rank, {soak, "push"});
    }
  };
  const CudaGraph graph(gpu_rank.stream, enqueue_some);
  gpu_rank.board.barrier();
  if (::write(running, "r", 1) != 1) return 6;
  ::close(running);
  int64_t begin_us = 0;
  std::string error;
  while (error.empty()) {
    begin_us = now_us();
    graphs ? graph.launch(gpu_rank.stream) : enqueue_some();
    gpu_rank.stream.synchronize();
    try {
      gpu_rank.reduce.check();
    } catch (const Error& caught) {
      error = caught.what();
    }
  }
  const int64_t took_ms = (now_us() - begin_us) / 1000;
  std::printf("rank %d, %d ms: %s\n", rank, static_cast<int>(took_ms), error.c_str());
  if (error.find(fmt::format("for rank {}", dead)) == std::string::npos) return 2;
  if (took_ms > kTimeoutMs + kSlackMs) return 3;
  gpu_rank.alone = true;
  RankBoard board(second, rank, 20'000);
  gpu_rank.reduce.rebuild(board);
  board.barrier();
  check_cuda(cudaMemset(gpu_rank.tally.data(), 0, sizeof(SoakTally)), "clear a tally");
  check_cuda(cudaDeviceSynchronize(), "clear a tally");
  for (uint32_t call = 0; call < calls_after_rebuild(ranks); ++call)
    enqueue(gpu_rank, {soak_call(gpu_rank, call, 4096, 0), "push"});
  const bool right = gpu_rank.read_tally().wrong == 0;
  gpu_rank.reduce.check();
  board.barrier();
  return right ? 0 : 5;
}

int replace(const std::shared_ptr<const ShmRegion>& second, int rank, int ranks) {
  GpuRank gpu_rank(second, rank, test_settings(ranks, kTimeoutMs));
  for (uint32_t call = 0; call < calls_after_rebuild(ranks); ++call)
    enqueue(gpu_rank, {soak_call(gpu_rank, call, 4096, 0), "push"});
  const bool right = gpu_rank.read_tally().wrong == 0;
  gpu_rank.reduce.check();
  gpu_rank.board.barrier();
  gpu_rank.alone = true;
  return right ? 0 : 5;
}

struct DeadCase {
  int ranks;
  int signal;
  bool graphs;
};
class GpuProcessFailures : public ::testing::TestWithParam<DeadCase> {};

// The dead rank's replacement meets the survivors on a new board.
TEST_P(GpuProcessFailures, a_dead_rank_is_named_in_time_and_replaced) {
  const auto [ranks, signal, graphs] = GetParam();
  const int dead = ranks - 1;
  const auto first = RankBoard::make_region(ranks), second = RankBoard::make_region(ranks);
  int running[2];
  ASSERT_EQ(::pipe(running), 0);
  Processes processes;
  for (int rank = 0; rank < ranks; ++rank)
    processes.start([&, rank] { return survive(first, second, rank, ranks, dead, graphs, running[1]); });
  ::close(running[1]);
  for (int rank = 0; rank < ranks; ++rank) {
    char byte;
    ASSERT_EQ(::read(running[0], &byte, 1), 1) << "a rank did not come up";
  }
  ::close(running[0]);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  ::kill(processes.id(dead), signal);
  processes.start([&] { return replace(second, dead, ranks); });
  for (int rank = 0; rank < dead; ++rank) EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
  EXPECT_EQ(processes.wait(ranks), 0);
}
INSTANTIATE_TEST_SUITE_P(worlds, GpuProcessFailures,
                         ::testing::Values(DeadCase{2, SIGKILL, false}, DeadCase{2, SIGSTOP, true},
                                           DeadCase{3, SIGKILL, true}, DeadCase{3, SIGSTOP, false}));

}  // namespace
}  // namespace coprime
