// A gate's epilogue in f32, with the bits of every CPU's Device::add_norm: residual += sum; then normed = residual *
// (1 / sqrt(squares / columns + eps)) * weight, the squares added in 16 lanes (lane = column mod 16, columns ascending,
// fused), lanes pairwise, 8, 4, 2 and 1 apart.
#pragma once

#include "collective/cuda/norm_arguments.h"

namespace coprime {

// One block a row, 256 threads.
__global__ void __launch_bounds__(256) add_norm_rows_kernel(const float* sums, FloatRows residual, const float* weight,
                                                            float eps, FloatRows normed, int64_t columns) {
  __shared__ float shared_scale;
  float* const row = residual.data + blockIdx.x * residual.stride;
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x)
    row[c] = __fadd_rn(row[c], sums[blockIdx.x * columns + c]);
  if (weight == nullptr) return;
  __syncthreads();
  if (threadIdx.x < 32) {
    float lane = 0;
    if (threadIdx.x < 16) {
#pragma unroll 8
      for (int64_t c = threadIdx.x; c < columns; c += 16) lane = __fmaf_rn(row[c], row[c], lane);
    }
#pragma unroll
    for (int apart = 8; apart > 0; apart /= 2) lane = __fadd_rn(lane, __shfl_down_sync(0xffffffff, lane, apart));
    if (threadIdx.x == 0) {
      const float mean = __fdiv_rn(lane, static_cast<float>(columns));
      shared_scale = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, eps)));
    }
  }
  __syncthreads();
  float* const out = normed.data + blockIdx.x * normed.stride;
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x)
    out[c] = __fmul_rn(__fmul_rn(row[c], shared_scale), weight[c]);
}

}  // namespace coprime
