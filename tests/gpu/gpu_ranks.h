// Ranks of GPU tests: as threads of one process, each with a stream of its own, or as processes. Rank r runs on GPU
// r mod the number of GPUs.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "collective/cuda/gpu_all_reduce.h"
#include "cuda/devices.h"
#include "cuda/stream.h"
#include "gate/testing.h"
#include "soak_kernels.h"

namespace coprime::testing {

inline constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB;

// Slots of 4 MiB, all rows of the table within them.
inline GpuAllReduceSettings test_settings(int ranks, int timeout_ms = 20'000) {
  GpuAllReduceSettings settings{.limits = all_reduce_limits(ranks, true, 15, 4 * kMiB), .timeout_ms = timeout_ms};
  settings.limits.exact_bytes = 4 * kMiB;
  return settings;
}

// What a rank has: made on its own device.
struct GpuRank {
  GpuRank(std::shared_ptr<const ShmRegion> region, int rank, const GpuAllReduceSettings& settings)
      : board(std::move(region), rank, 20'000),
        device((use_gpu(rank % count_gpus()), 0)),
        reduce(board, settings),
        in(8 * kMiB),
        out(8 * kMiB),
        tally(sizeof(SoakTally)) {
    check_cuda(cudaMemset(tally.data(), 0, sizeof(SoakTally)), "clear a tally");
    check_cuda(cudaDeviceSynchronize(), "clear a tally");
    board.barrier();  // nobody waits for a rank that still allocates
  }
  ~GpuRank() {
    try {
      cudaDeviceSynchronize();
      if (!alone) board.barrier();  // nobody pushes any more
    } catch (const Error&) {
      // a rank of a test that failed; its message says more
    }
  }

  int rank() const { return reduce.rank(); }
  int ranks() const { return reduce.ranks(); }
  SoakTally read_tally() const {
    SoakTally value;
    stream.synchronize();
    check_cuda(cudaMemcpy(&value, tally.data(), sizeof value, cudaMemcpyDeviceToHost), "read a tally");
    return value;
  }
  SoakTally* tally_on_gpu() const { return reinterpret_cast<SoakTally*>(tally.data()); }

  RankBoard board;
  int device;
  CudaStream stream;
  GpuAllReduce reduce;
  DeviceMemory in, out, tally;
  bool alone = false;  // the others are dead
};

inline void run_gpu_threads(int ranks, const GpuAllReduceSettings& settings,
                            const std::function<void(GpuRank&)>& body) {
  const auto region = RankBoard::make_region(ranks);
  run_threads(ranks, [&](int rank) {
    try {
      GpuRank gpu_rank(region, rank, settings);
      body(gpu_rank);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << rank << ": " << error.what();
    }
  });
}

inline const AllReduceRow& row_named(std::string_view name) {
  for (const AllReduceRow& row : all_reduce_rows()) {
    if (row.name == name) return row;
  }
  fail(ErrorKind::kInternal, "no row {}", name);
}

// One bf16 call of a soak with any row or kernel; sizes are the same on all ranks.
struct SoakStep {
  SoakCall call;
  std::string_view row;  // "": `kernel`
  Kernel kernel = {};
};
// The vectors at `offset` bytes.
inline void enqueue_sum(GpuRank& rank, const SoakStep& step, int64_t offset = 0) {
  const void* const in = rank.in.data() + offset;
  void* const out = rank.out.data() + offset;
  if (step.row.empty()) {
    const int blocks = rank.reduce.blocks_for(step.kernel, step.call.words);
    check_cuda(launch(step.kernel, blocks, rank.stream.get(), rank.reduce.world(), in, out, step.call.words), "launch");
  } else {
    rank.reduce.sum(rank.stream.get(), row_named(step.row), {.type = DType::kBF16, .elements = step.call.words * 8}, in,
                    out);
  }
}
inline void enqueue(GpuRank& rank, const SoakStep& step) {
  fill_vector(rank.stream.get(), step.call, rank.in.data());
  enqueue_sum(rank, step);
  check_sum(rank.stream.get(), step.call, rank.out.data(), rank.tally_on_gpu());
}

// The same on all ranks but for delay and rank: sizes from 16 bytes to `most_words`, by magnitude.
inline SoakCall soak_call(const GpuRank& rank, uint32_t call, int64_t most_words, uint32_t most_delay_ns) {
  std::mt19937 of_all(call * 7919 + 13), of_rank(call * 104729 + static_cast<uint32_t>(rank.rank()));
  const double size = std::uniform_real_distribution<double>(0, std::log2(static_cast<double>(most_words)))(of_all);
  const auto words = static_cast<int64_t>(std::exp2(size));
  const uint32_t delay = of_rank() % 4 == 0 && most_delay_ns > 0 ? static_cast<uint32_t>(of_rank()) % most_delay_ns : 0;
  return {.seed = 1, .call = call, .rank = rank.rank(), .ranks = rank.ranks(), .words = words, .delay_ns = delay};
}

// The kernels of the tests, loaded before anybody waits for anybody.
inline void load_soak_kernels(GpuRank& rank) {
  const SoakCall call{.rank = rank.rank(), .ranks = rank.ranks(), .words = 1};
  fill_vector(rank.stream.get(), call, rank.in.data());
  check_sum(rank.stream.get(), call, rank.in.data(), rank.tally_on_gpu());
  hash_words(rank.stream.get(), rank.in.data(), 1, rank.tally_on_gpu());
  wait_on_gpu(rank.stream.get(), 1);
  for (const Kernel& kernel :
       {fenced_push_kernel(), slow_push_kernel(), one_half_push_kernel(), own_first_push_kernel()})
    resident_blocks(kernel);
  rank.stream.synchronize();
  check_cuda(cudaMemset(rank.tally.data(), 0, sizeof(SoakTally)), "clear a tally");
  check_cuda(cudaDeviceSynchronize(), "clear a tally");
  rank.board.barrier();
}

}  // namespace coprime::testing
