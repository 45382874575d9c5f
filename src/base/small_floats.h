// Numbers of 8 and 4 bits of the OCP formats, to and from float: E4M3 (FN: no infinity, 0x7f and 0xff are NaN), E2M1
// and E8M0 (a power of two; 0xff is NaN). Conversions from float round to nearest even and saturate.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace coprime {

constexpr float kMaxE4m3 = 448, kMaxE2m1 = 6;

inline float e4m3_to_f32(uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  if ((code & 0x7f) == 0x7f) return std::bit_cast<float>(0x7fc00000u | uint32_t{code & 0x80u} << 24);
  const float magnitude =
      exponent == 0
          ? static_cast<float>(mantissa) * 0x1p-9f
          : std::bit_cast<float>(static_cast<uint32_t>(exponent + 120) << 23 | static_cast<uint32_t>(mantissa) << 20);
  return code & 0x80 ? -magnitude : magnitude;
}

inline uint8_t f32_to_e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7f;
  if (magnitude < 0x3c800000) {  // below 2^-6: a multiple of 2^-9, of which the eighth is the smallest normal number
    return sign | static_cast<uint8_t>(std::nearbyint(std::bit_cast<float>(magnitude) * 0x1p9f));
  }
  const uint32_t rounded = (std::min<uint32_t>(magnitude, 0x43e00000) + 0x7ffff + (magnitude >> 20 & 1)) >> 20;
  return sign | static_cast<uint8_t>(std::min<uint32_t>(rounded - (120u << 3), 0x7e));
}

inline float e2m1_to_f32(uint8_t code) {
  constexpr float kValues[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return code & 8 ? -kValues[code & 7] : kValues[code & 7];
}

// Of a number that is no NaN.
inline uint8_t f32_to_e2m1(float value) {
  const float magnitude = std::fabs(value);
  // Half-way values between two codes; where they go to the even code, they belong below the bound.
  uint8_t code = 0;
  if (magnitude > 0.25f) code = 1;
  if (magnitude >= 0.75f) code = 2;
  if (magnitude > 1.25f) code = 3;
  if (magnitude >= 1.75f) code = 4;
  if (magnitude > 2.5f) code = 5;
  if (magnitude >= 3.5f) code = 6;
  if (magnitude > 5) code = 7;
  return code | static_cast<uint8_t>(std::signbit(value) ? 8 : 0);
}

inline float e8m0_to_f32(uint8_t code) {
  if (code == 0xff) return std::bit_cast<float>(0x7fc00000u);
  return std::bit_cast<float>(code == 0 ? 0x400000u : uint32_t{code} << 23);  // 2^-127 is a subnormal
}

// The scale of a block of E2M1 whose largest magnitude is `largest`, finite, by AMD Quark's "even" rule: the magnitude
// is rounded to one more bit than a code's mantissa has, so that one from 1.75 on counts as the next power of two; then
// its exponent less 2, that of the largest code.
inline uint8_t e8m0_scale(float largest) {
  const int exponent = static_cast<int>((std::bit_cast<uint32_t>(largest) + 0x200000) >> 23 & 0xff);
  return static_cast<uint8_t>(std::clamp(exponent - 2, 0, 254));
}

}  // namespace coprime
