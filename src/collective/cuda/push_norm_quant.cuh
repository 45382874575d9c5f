// The push all-reduce fused with what follows it: one block or a cluster of blocks a row, which never stores its sum.
#pragma once

#include "collective/cuda/add_norm_quant.cuh"
#include "collective/cuda/push.cuh"

namespace coprime {

template <int kMost, int kGroups>
__global__ void __launch_bounds__(kMaxNormThreads)
    push_norm_quant_kernel(const __grid_constant__ GpuWorld world, const uint4* in, const NormArguments norm) {
  __shared__ RowShared shared;
  RowThreads threads = threads_of_row(shared);
  const int64_t groups = norm.columns / 8, first_row = blockIdx.x / threads.blocks, rows = gridDim.x / threads.blocks;
  uint4 own[kGroups];
  NormInputs inputs[kGroups];
  const auto fetch = [&](int64_t row) {
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const int64_t group = threads.index + int64_t{j} * threads.count;
      if (group >= groups) continue;
      own[j] = in[row * groups + group];
      inputs[j] = fetch_norm_inputs(norm, row, group);
    }
  };
  ptx::wait_for_earlier_grid();
  fetch(first_row);
  const Launch launch = begin_launch(world);
  const int half = half_of<PushVariant::kShipped>(launch.call);
  if (launch.aborted) {
    end_aborted(world, launch.call);  // and the blocks of its cluster hear of it with its first row
  } else {
    for (int64_t row = first_row; row < norm.rows; row += rows) {
#pragma unroll
      for (int j = 0; j < kGroups; ++j) {
        const int64_t group = threads.index + int64_t{j} * threads.count, word = row * groups + group;
        if (group < groups) push_to_all<kMost>(world, half, word, row == first_row ? own[j] : in[word]);
      }
    }
    count_launch(world, launch.call);
  }
  ptx::let_next_grid_begin();
  all_begun(threads);

  Patience patience(world, launch.call);
  for (int64_t row = first_row; row < norm.rows; row += rows) {
    if (row != first_row) fetch(row);
    uint4 sums[kGroups];
    bool given_up = launch.aborted;
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const int64_t group = threads.index + int64_t{j} * threads.count;
      if (group >= groups || given_up) continue;
      Terms<kMost> terms;
      given_up = !collect<kMost>(world, half, row * groups + group, own[j], patience, terms);
      sums[j] = sum_in_rank_order<Bf16, kMost>(terms, ranks_of<kMost>(world));
    }
    if (!add_norm_quant_row<kGroups>(norm, threads, shared, row, sums, inputs, given_up))
      return count_bail_out(world, launch.call);
  }
}

// The same after any all-reduce: `sums` are [rows, columns] bf16.
template <int kGroups>
__global__ void __launch_bounds__(kMaxNormThreads)
    add_norm_quant_kernel(const uint4* all_sums, const NormArguments norm) {
  __shared__ RowShared shared;
  RowThreads threads = {1, 0, threadIdx.x, blockDim.x};
  const int64_t groups = norm.columns / 8;
  for (int64_t row = blockIdx.x; row < norm.rows; row += gridDim.x) {
    uint4 sums[kGroups];
    NormInputs inputs[kGroups];
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const int64_t group = threads.index + int64_t{j} * threads.count;
      if (group >= groups) continue;
      sums[j] = all_sums[row * groups + group];
      inputs[j] = fetch_norm_inputs(norm, row, group);
    }
    add_norm_quant_row<kGroups>(norm, threads, shared, row, sums, inputs, false);
  }
}

}  // namespace coprime
