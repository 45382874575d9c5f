// What a fused all-reduce does with its sum, on the host: residual, RMSNorm, FP8. The reference of the kernels, bit for
// bit; they share the order of additions that norm_threads() states.
//
// By row, with y = the all-reduce's sum in bf16: v = float(y) + float(residual); residual = bf16(v); the mean square
// and the norm are over v before that rounding; inv = 1 / sqrt(squares / columns + eps), both IEEE; n = bf16((v inv)
// gamma), gamma = weight or 1 + weight; scale = max(amax / 448, 1 / (448 * 512)) with amax the largest |n|; q = e4m3(n
// / scale), saturated. What is no number does not count for amax, and its q is 0x7f.
#pragma once

#include <cstdint>
#include <span>

namespace coprime {

// Columns are a multiple of 8 up to kMaxNormColumns. A thread owns groups of 8 columns: group t, t + threads, ...; it
// adds its squares in the order of its columns, from +0; lanes of a warp add pairwise, 16 apart, then 8, 4, 2, 1; the
// warps' sums, filled up to 32 with +0, likewise.
inline constexpr int kMaxNormColumns = 16384;
inline constexpr int kMaxNormThreads = 768;
constexpr bool norm_takes(int64_t columns) { return columns >= 8 && columns % 8 == 0 && columns <= kMaxNormColumns; }
// Groups of a thread, and threads of a row: whole warps.
constexpr int norm_groups(int64_t columns) {
  return static_cast<int>((columns / 8 + kMaxNormThreads - 1) / kMaxNormThreads);
}
constexpr int norm_threads(int64_t columns) {
  const int64_t rounds = norm_groups(columns);
  return static_cast<int>(((columns / 8 + rounds - 1) / rounds + 31) / 32 * 32);
}

struct NormParameters {
  std::span<const float> weight;  // by column; empty: the residual is all
  float eps = 0;
  bool one_plus = false;  // gamma = 1 + weight
};

// One row: `sum`, `residual` and `normed` are bf16, `codes` e4m3. The residual is updated in place. `normed` may be
// empty, and `codes`, which leaves `scale` alone. `scratch` holds a row.
void add_norm_quant_row(std::span<const uint16_t> sum, const NormParameters& norm, std::span<uint16_t> residual,
                        std::span<uint16_t> normed, std::span<uint8_t> codes, float& scale, std::span<float> scratch);

}  // namespace coprime
