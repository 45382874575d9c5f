// The push all-reduce fused with what follows it: one block a row, which never stores its sum.
#pragma once

#include "collective/all_reduce/add_norm_quant.h"
#include "collective/cuda/add_norm_quant.cuh"
#include "collective/cuda/push.cuh"

namespace coprime {

template <int kMost, int kGroups>
__global__ void __launch_bounds__(kMaxNormThreads)
    push_norm_quant_kernel(const __grid_constant__ GpuWorld world, const uint4* in, const NormArguments norm) {
  const int64_t groups = norm.columns / 8;
  const int64_t first =
      blockIdx.x * groups + threadIdx.x;  // this thread's first word, on its way while the call is read
  const uint4 first_own = threadIdx.x < groups && blockIdx.x < norm.rows ? in[first] : uint4{};
  const Launch launch = begin_launch(world);
  if (launch.aborted) return end_aborted(world, launch.call);
  const int half = half_of<PushVariant::kShipped>(launch.call);
  for (int64_t row = blockIdx.x; row < norm.rows; row += gridDim.x) {
    for (int64_t group = threadIdx.x; group < groups; group += blockDim.x) {
      const int64_t word = row * groups + group;
      push_to_all<kMost>(world, half, word, word == first ? first_own : in[word]);
    }
  }
  count_launch(world, launch.call);

  Patience patience(world, launch.call);
  for (int64_t row = blockIdx.x; row < norm.rows; row += gridDim.x) {
    uint4 sums[kGroups];
    NormInputs inputs[kGroups];
    uint4 own[kGroups];
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const int64_t group = threadIdx.x + int64_t{j} * blockDim.x;
      if (group >= groups) continue;
      own[j] = in[row * groups + group];
      inputs[j] = fetch_norm_inputs(norm, row, group);
    }
    bool given_up = false;
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const int64_t group = threadIdx.x + int64_t{j} * blockDim.x;
      if (group >= groups || given_up) continue;
      Terms<kMost> terms;
      given_up = !collect<kMost>(world, half, row * groups + group, own[j], patience, terms);
      sums[j] = sum_in_rank_order<Bf16, kMost>(terms, world.world);
    }
    if (!add_norm_quant_row<kGroups>(norm, row, sums, inputs, given_up)) return count_bail_out(world, launch.call);
    if (row + gridDim.x < norm.rows) __syncthreads();
  }
}

// The same after any all-reduce: `sums` are [rows, columns] bf16.
template <int kGroups>
__global__ void __launch_bounds__(kMaxNormThreads)
    add_norm_quant_kernel(const uint4* all_sums, const NormArguments norm) {
  const int64_t groups = norm.columns / 8;
  for (int64_t row = blockIdx.x; row < norm.rows; row += gridDim.x) {
    uint4 sums[kGroups];
    NormInputs inputs[kGroups];
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const int64_t group = threadIdx.x + int64_t{j} * blockDim.x;
      if (group >= groups) continue;
      sums[j] = all_sums[row * groups + group];
      inputs[j] = fetch_norm_inputs(norm, row, group);
    }
    add_norm_quant_row<kGroups>(norm, row, sums, inputs, false);
    if (row + gridDim.x < norm.rows) __syncthreads();
  }
}

}  // namespace coprime
