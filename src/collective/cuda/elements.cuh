// Element types as kernels see them: 16 bytes are kCount elements; widening is exact, rounding is as rank_order_sum.h
// says.
#pragma once

#include <cstdint>

#include "collective/cuda/slab.h"
#include "cuda/ptx/convert.cuh"

namespace coprime {

struct Bf16 {
  static constexpr int kCount = 8;
  __device__ static void widen(uint32_t word, float* out) {
    out[0] = __uint_as_float(word << 16);
    out[1] = __uint_as_float(word & 0xffff0000);
  }
  __device__ static uint32_t narrow(const float* in) { return ptx::pack_bf16(in[1], in[0]); }
};

struct F16 {
  static constexpr int kCount = 8;
  __device__ static void widen(uint32_t word, float* out) {
    out[0] = ptx::f16_to_f32(word & 0xffff);
    out[1] = ptx::f16_to_f32(word >> 16);
  }
  __device__ static uint32_t narrow(const float* in) { return ptx::pack_f16(in[1], in[0]); }
};

struct F32 {
  static constexpr int kCount = 4;
  __device__ static void widen(uint32_t word, float* out) { out[0] = __uint_as_float(word); }
  __device__ static uint32_t narrow(const float* in) { return __float_as_uint(in[0]); }
};

template <class Type>
__device__ inline void widen(const uint4& words, float (&out)[Type::kCount]) {
  constexpr int kEach = Type::kCount / 4;
  Type::widen(words.x, out);
  Type::widen(words.y, out + kEach);
  Type::widen(words.z, out + 2 * kEach);
  Type::widen(words.w, out + 3 * kEach);
}

template <class Type>
__device__ inline uint4 narrow(const float (&in)[Type::kCount]) {
  constexpr int kEach = Type::kCount / 4;
  return make_uint4(Type::narrow(in), Type::narrow(in + kEach), Type::narrow(in + 2 * kEach),
                    Type::narrow(in + 3 * kEach));
}

// One 16-byte word of each rank, in rank order; kMost bounds the world at compile time.
template <int kMost>
struct Terms {
  uint4 of[kMost];
};

// ((t0 + t1) + t2) + ..., rounded once.
template <class Type, int kMost>
__device__ inline uint4 sum_in_rank_order(const Terms<kMost>& terms, int world) {
  float sum[Type::kCount];
  widen<Type>(terms.of[0], sum);
#pragma unroll
  for (int rank = 1; rank < kMost; ++rank) {
    if (rank < world) {
      float term[Type::kCount];
      widen<Type>(terms.of[rank], term);
#pragma unroll
      for (int i = 0; i < Type::kCount; ++i) sum[i] = __fadd_rn(sum[i], term[i]);
    }
  }
  return narrow<Type>(sum);
}

}  // namespace coprime
