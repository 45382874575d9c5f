#include "collective/all_reduce/rank_order_sum.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/number_formats.h"

namespace coprime {

float canonical_nan(float value) { return std::isnan(value) ? std::bit_cast<float>(kNan32) : value; }
uint16_t canonical_bf16(float value) { return std::isnan(value) ? kNan16 : f32_to_bf16(value); }
uint16_t canonical_f16(float value) { return std::isnan(value) ? kNan16 : f32_to_f16(value); }

float load_element(DType type, const std::byte* vector, int64_t index) {
  if (type == DType::kF32) {
    float value;
    std::memcpy(&value, vector + 4 * index, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, vector + 2 * index, 2);
  return type == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

void store_element(DType type, float value, std::byte* vector, int64_t index) {
  if (type == DType::kF32) {
    const float canonical = canonical_nan(value);
    std::memcpy(vector + 4 * index, &canonical, 4);
    return;
  }
  const uint16_t bits = type == DType::kBF16 ? canonical_bf16(value) : canonical_f16(value);
  std::memcpy(vector + 2 * index, &bits, 2);
}

void sum_in_rank_order(DType type, std::span<const std::byte* const> terms, int64_t first, int64_t count,
                       std::byte* out) {
  COPRIME_CHECK(is_float(type) && terms.size() >= 2, "{} terms of {}", terms.size(), dtype_name(type));
  for (int64_t i = 0; i < count; ++i) {
    float sum = load_element(type, terms[0], first + i);
    for (size_t rank = 1; rank < terms.size(); ++rank) sum = sum + load_element(type, terms[rank], first + i);
    store_element(type, sum, out, i);
  }
}

}  // namespace coprime
