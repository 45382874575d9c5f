// Residual, RMSNorm and FP8 of one row by one block or a cluster of blocks, in the order that
// all_reduce/add_norm_quant.h states, whatever the number of blocks. The fused and the stand-alone kernel share it.
#pragma once

#include "base/small_floats.h"
#include "collective/all_reduce/add_norm_quant.h"
#include "collective/cuda/elements.cuh"
#include "collective/cuda/norm_arguments.h"
#include "cuda/ptx/grid.cuh"

namespace coprime {

// A value of each warp of a row and whether it gave up.
struct WarpValue {
  uint32_t bits, given_up;
};

// In the shared memory of every block of a row. Two, in turns: who leaves values for the turn after next has had those
// of the next, which every warp left after it had read these.
struct RowShared {
  WarpValue values[2][32];
  uint64_t arrived[2];
};

// The threads of a row: those of a cluster's blocks, one after the other.
struct RowThreads {
  unsigned blocks, block, index, count;
  uint32_t turn = 0;
};

// By all threads of a kernel, first; then all_begun() before the first row.
__device__ inline RowThreads threads_of_row(RowShared& shared) {
  const unsigned blocks = ptx::cluster_blocks(), block = ptx::block_of_cluster();
  if (blocks > 1) {
    if (threadIdx.x == 0) {
      ptx::init_cluster_barrier(&shared.arrived[0]);
      ptx::init_cluster_barrier(&shared.arrived[1]);
    }
    ptx::cluster_arrive();
  }
  return {blocks, block, block * blockDim.x + threadIdx.x, blocks * blockDim.x};
}
__device__ inline void all_begun(const RowThreads& threads) {
  if (threads.blocks > 1) ptx::cluster_wait();
}

// Leaves this warp's value with all blocks of the row, waits for those of all warps, and gives lane l warp l's; zeros
// beyond.
__device__ inline WarpValue share_warps(RowThreads& threads, RowShared& shared, WarpValue mine) {
  const unsigned lane = threadIdx.x % 32, warp = threads.index / 32, warps = threads.count / 32;
  const uint32_t which = threads.turn & 1, parity = threads.turn >> 1 & 1;
  ++threads.turn;
  WarpValue* const values = shared.values[which];
  if (threads.blocks == 1) {
    if (lane == 0) values[warp] = mine;
    __syncthreads();
  } else {
    uint64_t* const arrived = &shared.arrived[which];
    if (threadIdx.x == 0) ptx::announce_bytes(arrived, warps * sizeof(WarpValue));
    if (lane < threads.blocks) ptx::send_to_block(lane, values + warp, arrived, mine.bits, mine.given_up);
    ptx::wait_for_bytes(arrived, parity);
  }
  return lane < warps ? values[lane] : WarpValue{};
}

// What a thread needs of residual and weight, fetched before the sum is there.
struct NormInputs {
  uint4 residual;
  float gamma[8];
};

__device__ inline NormInputs fetch_norm_inputs(const NormArguments& norm, int64_t row, int64_t group) {
  NormInputs inputs;
  inputs.residual = reinterpret_cast<const uint4*>(norm.residual)[row * norm.columns / 8 + group];
  if (norm.weight == nullptr) return inputs;
  const float4* const weight = reinterpret_cast<const float4*>(norm.weight) + 2 * group;
  const float4 low = weight[0], high = weight[1];
  inputs.gamma[0] = low.x, inputs.gamma[1] = low.y, inputs.gamma[2] = low.z, inputs.gamma[3] = low.w;
  inputs.gamma[4] = high.x, inputs.gamma[5] = high.y, inputs.gamma[6] = high.z, inputs.gamma[7] = high.w;
  return inputs;
}

__device__ inline float add_lanes(float value) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) value = __fadd_rn(value, __shfl_xor_sync(0xffffffff, value, apart));
  return value;
}

// value / scale rounded to nearest, given 1 / scale rounded to nearest: the quotient's guess is within a unit of its
// last place, its remainder is exact, and one step corrects it (Markstein). Where the remainder underflows the quotient
// is far below e4m3's smallest number.
__device__ inline float divide_by_scale(float value, float scale, float reciprocal) {
  const float guess = __fmul_rn(value, reciprocal);
  return copysignf(__fmaf_rn(__fmaf_rn(-guess, scale, value), reciprocal, guess), value);  // of zeros, too
}

// sums[j] are the row's columns of group threads.index + j * threads.count, in bf16. By all norm_threads(columns)
// threads of the row. False, with nothing written, where some thread's sums are given up.
template <int kGroups>
__device__ inline bool add_norm_quant_row(const NormArguments& norm, RowThreads& threads, RowShared& shared,
                                          int64_t row, const uint4 (&sums)[kGroups],
                                          const NormInputs (&inputs)[kGroups], bool given_up) {
  const int64_t groups = norm.columns / 8;
  float values[kGroups][8];
  float squares = 0;
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    if (threads.index + int64_t{j} * threads.count >= groups) continue;
    float residual[8];
    widen<Bf16>(sums[j], values[j]);
    widen<Bf16>(inputs[j].residual, residual);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      values[j][i] = __fadd_rn(values[j][i], residual[i]);
      squares = __fadd_rn(squares, __fmul_rn(values[j][i], values[j][i]));
    }
  }
  const WarpValue of_warp =
      share_warps(threads, shared, {__float_as_uint(add_lanes(squares)), __any_sync(0xffffffff, given_up) != 0});
  if (__any_sync(0xffffffff, of_warp.given_up != 0)) return false;
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    const int64_t group = threads.index + int64_t{j} * threads.count;
    if (group < groups) reinterpret_cast<uint4*>(norm.residual)[row * groups + group] = narrow<Bf16>(values[j]);
  }
  if (norm.weight == nullptr) return true;
  const float mean = __fdiv_rn(add_lanes(__uint_as_float(of_warp.bits)), static_cast<float>(norm.columns));
  const float inverse = __frcp_rn(__fsqrt_rn(__fadd_rn(mean, norm.eps)));
  float largest = 0;
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    const int64_t group = threads.index + int64_t{j} * threads.count;
    if (group >= groups) continue;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float gamma = norm.one_plus ? __fadd_rn(1.0f, inputs[j].gamma[i]) : inputs[j].gamma[i];
      values[j][i] = __fmul_rn(__fmul_rn(values[j][i], inverse), gamma);
    }
    const uint4 rounded = narrow<Bf16>(values[j]);
    if (norm.normed != nullptr) reinterpret_cast<uint4*>(norm.normed)[row * groups + group] = rounded;
    widen<Bf16>(rounded, values[j]);
#pragma unroll
    for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(values[j][i]));
  }
  if (norm.codes == nullptr) return true;
  // Floats of one sign are in the order of their bits.
  const uint32_t warps_largest =
      share_warps(threads, shared, {__reduce_max_sync(0xffffffff, __float_as_uint(largest)), 0}).bits;
  constexpr float kSmallestScale = 1.0f / (kMaxE4m3 * 512), kReciprocal = 1.0f / kMaxE4m3;
  const float amax = __uint_as_float(__reduce_max_sync(0xffffffff, warps_largest));
  const float scale = isinf(amax) ? amax : fmaxf(divide_by_scale(amax, kMaxE4m3, kReciprocal), kSmallestScale);
  if (threads.index == 0) norm.scales[row] = scale;
  const float reciprocal = __frcp_rn(scale);
  const float divisor = isinf(scale) ? 1.0f : scale;  // beside a reciprocal of 0: numbers to 0, infinities to none
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    const int64_t group = threads.index + int64_t{j} * threads.count;
    if (group >= groups) continue;
#pragma unroll
    for (int i = 0; i < 8; ++i) values[j][i] = divide_by_scale(values[j][i], divisor, reciprocal);
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = ptx::pack_e4m3(values[j][2 * i + 1], values[j][2 * i]);
    reinterpret_cast<uint2*>(norm.codes)[row * groups + group] =
        make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
  }
  return true;
}

}  // namespace coprime
