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

// The warps' values added in their order; by all threads. `shared` has 32 floats that nobody else uses meanwhile.
__device__ inline float add_warps(float value, float* shared) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) value = __fadd_rn(value, __shfl_xor_sync(0xffffffff, value, apart));
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = shared[0];
  for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) sum = __fadd_rn(sum, shared[warp]);
  return sum;
}

__device__ inline float largest_of_warps(float value, float* shared) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, apart));
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  float largest = shared[0];
  for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) largest = fmaxf(largest, shared[warp]);
  return largest;
}

// sums[j] are the row's columns of group threadIdx.x + j * blockDim.x, in bf16. By all threads of a block of
// norm_threads(columns).
template <int kGroups>
__device__ inline void add_norm_quant_row(const NormArguments& norm, int64_t row, const uint4 (&sums)[kGroups],
                                          const NormInputs (&inputs)[kGroups]) {
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
    reinterpret_cast<uint4*>(norm.residual)[row * groups + group] = narrow<Bf16>(values[j]);
  }
  if (norm.weight == nullptr) return;
  const float mean = __fdiv_rn(add_warps(squares, shared[0]), static_cast<float>(norm.columns));
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
    const float scale = fmaxf(__fdiv_rn(largest_of_warps(largest, shared[1]), 448.0f), __fdiv_rn(1.0f, 448.0f * 512));
    if (threadIdx.x == 0) norm.scales[row] = scale;
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const int64_t group = threadIdx.x + int64_t{j} * blockDim.x;
      if (group >= groups) continue;
      uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        pairs[i] = ptx::pack_e4m3(__fdiv_rn(values[j][2 * i + 1], scale), __fdiv_rn(values[j][2 * i], scale));
      }
      reinterpret_cast<uint2*>(norm.codes)[row * groups + group] =
          make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
    }
  }
  __syncthreads();  // `shared` is free for the block's next row
}

}  // namespace coprime
