// The sum that every all-reduce gives, as plain loops over the ranks' vectors: the reference of all kernels.
//
// out = round(((x0 + x1) + x2) + ...), each addition in f32, subnormals kept, one rounding to nearest even at the end.
// Starts with rank 0's term, never with zero, so that a sum of negative zeros stays one. A sum that is no number has
// one pattern whatever the terms' were: 0x7fff of bf16 and f16, 0x7fffffff of f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace coprime {

constexpr uint16_t kNan16 = 0x7fff;
constexpr uint32_t kNan32 = 0x7fffffff;

float canonical_nan(float value);      // itself, or kNan32
uint16_t canonical_bf16(float value);  // rounded to nearest even, or kNan16
uint16_t canonical_f16(float value);   // likewise

// Elements [first, first + count) of each term, `type` F32, F16 or BF16, into out[0, count).
void sum_in_rank_order(DType type, std::span<const std::byte* const> terms, int64_t first, int64_t count,
                       std::byte* out);

// Element `index` of a vector, widened; and rounded into it as above.
float load_element(DType type, const std::byte* vector, int64_t index);
void store_element(DType type, float value, std::byte* vector, int64_t index);

}  // namespace coprime
