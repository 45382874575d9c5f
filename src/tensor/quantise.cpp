#include "tensor/quantise.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/small_floats.h"

namespace coprime {
namespace {

constexpr size_t kMxColumns = 32;

}  // namespace

void quantise_mxfp4(std::span<const float> row, std::span<std::byte> codes, std::span<std::byte> scales) {
  COPRIME_CHECK(
      row.size() % kMxColumns == 0 && codes.size() == row.size() / 2 && scales.size() == row.size() / kMxColumns,
      "{} columns, {} codes, {} scales", row.size(), codes.size(), scales.size());
  for (size_t b = 0; b < scales.size(); ++b) {
    const auto block = row.subspan(b * kMxColumns, kMxColumns);
    const uint8_t exponent = e8m0_scale(largest_magnitude(block));
    scales[b] = static_cast<std::byte>(exponent);
    for (size_t i = 0; i < kMxColumns; i += 2) {
      // A power of two: exact, but where the quotient is too small to be anything but zero.
      const auto code = [&](float value) { return f32_to_e2m1(std::ldexp(value, 127 - exponent)); };
      codes[(b * kMxColumns + i) / 2] = static_cast<std::byte>(code(block[i]) | code(block[i + 1]) << 4);
    }
  }
}

float largest_magnitude(std::span<const float> values) {
  float largest = 0;
  bool finite = true;
  for (float value : values) {
    largest = std::max(largest, std::fabs(value));
    finite &= std::isfinite(value);
  }
  return finite ? largest : INFINITY;
}

float fp8_scale(float largest) { return largest == 0 ? 1.0f : std::max(largest / kMaxE4m3, 0x1p-126f); }

void quantise_fp8(std::span<const float> values, float scale, std::span<std::byte> codes) {
  for (size_t i = 0; i < values.size(); ++i) codes[i] = static_cast<std::byte>(f32_to_e4m3(values[i] / scale));
}

}  // namespace coprime
