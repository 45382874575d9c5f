// Conversions that round to nearest even. What is no number becomes 0x7fff in 16 bits, 0x7f in e4m3.
#pragma once

#include <cstdint>

namespace coprime::ptx {

// The second argument goes to the low half.
__device__ inline uint32_t pack_bf16(float high, float low) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ inline uint32_t pack_f16(float high, float low) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ inline float f16_to_f32(uint32_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<uint16_t>(bits)));
  return value;
}

// Saturates at 448. The second argument goes to the low byte.
__device__ inline uint32_t pack_e4m3(float high, float low) {
  uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace coprime::ptx
