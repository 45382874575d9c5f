#include "collective/all_reduce/add_norm_quant.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/number_formats.h"
#include "base/small_floats.h"
#include "collective/all_reduce/rank_order_sum.h"

namespace coprime {
namespace {

// e4m3(value), saturated; what is no number has one code.
uint8_t canonical_e4m3(float value) { return std::isnan(value) ? uint8_t{0x7f} : f32_to_e4m3(value); }

// 32 values, those 16 apart added, then 8, 4, 2, 1.
float add_pairwise(std::array<float, 32> values) {
  for (size_t apart = 16; apart > 0; apart /= 2) {
    for (size_t i = 0; i < apart; ++i) values[i] = values[i] + values[i + apart];
  }
  return values[0];
}

float sum_of_squares(std::span<const float> values) {
  const auto threads = static_cast<size_t>(norm_threads(static_cast<int64_t>(values.size())));
  const size_t groups = values.size() / 8;
  std::array<float, 32> warps = {};
  for (size_t warp = 0; warp < threads / 32; ++warp) {
    std::array<float, 32> lanes = {};
    for (size_t lane = 0; lane < 32; ++lane) {
      for (size_t group = warp * 32 + lane; group < groups; group += threads) {
        for (size_t i = 0; i < 8; ++i) {
          const float square = values[group * 8 + i] * values[group * 8 + i];
          lanes[lane] = lanes[lane] + square;
        }
      }
    }
    warps[warp] = add_pairwise(lanes);
  }
  return add_pairwise(warps);
}

}  // namespace

void add_norm_quant_row(std::span<const uint16_t> sum, const NormParameters& norm, std::span<uint16_t> residual,
                        std::span<uint16_t> normed, std::span<uint8_t> codes, float& scale, std::span<float> scratch) {
  const size_t columns = sum.size();
  COPRIME_CHECK(norm_takes(static_cast<int64_t>(columns)) && scratch.size() >= columns, "{} columns", columns);
  const std::span<float> values = scratch.first(columns);
  for (size_t i = 0; i < columns; ++i) {
    values[i] = bf16_to_f32(sum[i]) + bf16_to_f32(residual[i]);
    residual[i] = canonical_bf16(values[i]);
  }
  if (norm.weight.empty()) return;
  const float inverse = 1.0f / std::sqrt(sum_of_squares(values) / static_cast<float>(columns) + norm.eps);
  float largest = 0;
  for (size_t i = 0; i < columns; ++i) {
    const float gamma = norm.one_plus ? 1.0f + norm.weight[i] : norm.weight[i];
    const uint16_t rounded = canonical_bf16(values[i] * inverse * gamma);
    if (!normed.empty()) normed[i] = rounded;
    values[i] = bf16_to_f32(rounded);
    largest = std::fmax(largest, std::fabs(values[i]));
  }
  if (codes.empty()) return;
  scale = std::max(largest / kMaxE4m3, 1.0f / (kMaxE4m3 * 512));
  for (size_t i = 0; i < columns; ++i) codes[i] = canonical_e4m3(values[i] / scale);
}

}  // namespace coprime
