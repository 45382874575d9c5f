// Floats to the codes and scales of MXFP4 and FP8, by rows, as checkpoints store them. Rounds to nearest even and
// saturates; the formats themselves are in base/small_floats.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace coprime {

// A row of finite numbers, a multiple of 32, to nibbles (the even column in the low one) and one e8m0 scale for 32
// columns, by AMD Quark's even rule.
void quantise_mxfp4(std::span<const float> row, std::span<std::byte> codes, std::span<std::byte> scales);

// The largest magnitude; a NaN or an infinity is returned as infinity.
float largest_magnitude(std::span<const float> values);

// The scale that takes `largest` to the largest code; 1 where all is zero, and never so small that its inverse
// overflows.
float fp8_scale(float largest);

// Numbers to e4m3 codes of value / scale.
void quantise_fp8(std::span<const float> values, float scale, std::span<std::byte> codes);

}  // namespace coprime
