// Residual, RMSNorm and FP8 of one row by one block, in the order that all_reduce/add_norm_quant.h states. The fused
// and the stand-alone kernel share it.
#pragma once

#include "collective/cuda/elements.cuh"
#include "collective/cuda/norm_arguments.h"

namespace coprime {

// What a thread needs of residual and weight, fetched before the sum is there.
struct NormInputs {
  uint4 residual;
  float weight[8];
};

__device__ inline NormInputs fetch_norm_inputs(const NormArguments& norm, int64_t row, int64_t group) {
  NormInputs inputs;
  inputs.residual = reinterpret_cast<const uint4*>(norm.residual)[row * norm.columns / 8 + group];
  if (norm.weight == nullptr) return inputs;
  const float4* const weight = reinterpret_cast<const float4*>(norm.weight) + 2 * group;
  const float4 low = weight[0], high = weight[1];
  inputs.weight[0] = low.x, inputs.weight[1] = low.y, inputs.weight[2] = low.z, inputs.weight[3] = low.w;
  inputs.weight[4] = high.x, inputs.weight[5] = high.y, inputs.weight[6] = high.z, inputs.weight[7] = high.w;
  return inputs;
}

// All threads' values: lanes pairwise, then the warps' values likewise. `shared` has 32 floats that nobody else uses
// meanwhile. `barrier()` is the block's.
template <class Join, class Barrier>
__device__ inline float join_threads(float value, float* shared, const Join& join, const Barrier& barrier) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) value = join(value, __shfl_xor_sync(0xffffffff, value, apart));
  const unsigned lane = threadIdx.x % 32;
  if (lane == 0) shared[threadIdx.x / 32] = value;
  barrier();
  value = lane < blockDim.x / 32 ? shared[lane] : 0;
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) value = join(value, __shfl_xor_sync(0xffffffff, value, apart));
  return value;
}

// value / scale rounded to nearest, given 1 / scale rounded to nearest: the quotient's guess is within a unit of its
// last place, its remainder is exact, and one step corrects it (Markstein). Where the remainder underflows the quotient
// is far below e4m3's smallest number.
__device__ inline float divide_by_scale(float value, float scale, float reciprocal) {
  const float guess = __fmul_rn(value, reciprocal);
  return copysignf(__fmaf_rn(__fmaf_rn(-guess, scale, value), reciprocal, guess), value);  // of zeros, too
}

// sums[j] are the row's columns of group threadIdx.x + j * blockDim.x, in bf16. By all threads of a block of
// norm_threads(columns). False, with nothing written, where some thread's sums are given up. A block that goes on to
// another row needs a barrier between the two.
template <int kGroups>
__device__ inline bool add_norm_quant_row(const NormArguments& norm, int64_t row, const uint4 (&sums)[kGroups],
                                          const NormInputs (&inputs)[kGroups], bool given_up) {
  __shared__ float shared[2][32];
  const int64_t groups = norm.columns / 8;
  float values[kGroups][8];
  float squares = 0;
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    const int64_t group = threadIdx.x + int64_t{j} * blockDim.x;
    if (group >= groups) continue;
    float residual[8];
    widen<Bf16>(sums[j], values[j]);
    widen<Bf16>(inputs[j].residual, residual);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      values[j][i] = __fadd_rn(values[j][i], residual[i]);
      squares = __fadd_rn(squares, __fmul_rn(values[j][i], values[j][i]));
    }
  }
  bool any_given_up = false;
  const float all_squares = join_threads(
      squares, shared[0], [](float a, float b) { return __fadd_rn(a, b); },
      [&] { any_given_up = __syncthreads_or(given_up) != 0; });
  if (any_given_up) return false;
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    const int64_t group = threadIdx.x + int64_t{j} * blockDim.x;
    if (group < groups) reinterpret_cast<uint4*>(norm.residual)[row * groups + group] = narrow<Bf16>(values[j]);
  }
  if (norm.weight == nullptr) return true;
  const float mean = __fdiv_rn(all_squares, static_cast<float>(norm.columns));
  const float inverse = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, norm.eps)));
  float largest = 0;
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    const int64_t group = threadIdx.x + int64_t{j} * blockDim.x;
    if (group >= groups) continue;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float gamma = norm.one_plus ? __fadd_rn(1.0f, inputs[j].weight[i]) : inputs[j].weight[i];
      values[j][i] = __fmul_rn(__fmul_rn(values[j][i], inverse), gamma);
    }
    const uint4 rounded = narrow<Bf16>(values[j]);
    if (norm.normed != nullptr) reinterpret_cast<uint4*>(norm.normed)[row * groups + group] = rounded;
    widen<Bf16>(rounded, values[j]);
#pragma unroll
    for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(values[j][i]));
  }
  if (norm.codes != nullptr) {
    const float scale =
        fmaxf(__fdiv_rn(join_threads(
                            largest, shared[1], [](float a, float b) { return fmaxf(a, b); }, [] { __syncthreads(); }),
                        448.0f),
              __fdiv_rn(1.0f, 448.0f * 512));
    const float reciprocal = __frcp_rn(scale);
    if (threadIdx.x == 0) norm.scales[row] = scale;
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const int64_t group = threadIdx.x + int64_t{j} * blockDim.x;
      if (group >= groups) continue;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        values[j][i] = isinf(scale) ? __fdiv_rn(values[j][i], scale) : divide_by_scale(values[j][i], scale, reciprocal);
      }
      uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) pairs[i] = ptx::pack_e4m3(values[j][2 * i + 1], values[j][2 * i]);
      reinterpret_cast<uint2*>(norm.codes)[row * groups + group] =
          make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
    }
  }
  return true;
}

}  // namespace coprime
