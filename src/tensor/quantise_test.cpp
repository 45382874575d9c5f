// Scales and codes against the formats' definitions: the rule for the scale, and the nearest of all codes.
#include "tensor/quantise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/small_floats.h"

namespace coprime {
namespace {

// Rows of many sizes, zeros and powers of two among them.
std::vector<float> random_row(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> row(count);
  for (size_t i = 0; i < count; ++i) {
    row[i] = random() % 8 == 0 ? 0.0f : std::ldexp(normal(random), static_cast<int>(i / 32 % 40) - 20);
    if (random() % 8 == 0) row[i] = std::ldexp(1.0f, std::ilogb(row[i]));
  }
  return row;
}

TEST(Quantise, mxfp4_takes_the_nearest_code_of_the_even_rules_scale) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::vector<float> row = random_row(32 * 41, seed);
    std::fill_n(row.begin() + 64, 32, 0.0f);
    std::vector<std::byte> codes(row.size() / 2), scales(row.size() / 32);
    quantise_mxfp4(row, codes, scales);
    for (size_t b = 0; b < scales.size(); ++b) {
      double largest = 0;
      for (size_t i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(double{row[32 * b + i]}));
      const int exponent = static_cast<int>(scales[b]) - 127;
      if (largest > 0) {
        // A mantissa from 1.75 on counts as the next power of two.
        const int expected = std::ilogb(largest) + (largest / std::exp2(std::ilogb(largest)) >= 1.75 ? 1 : 0) - 2;
        ASSERT_EQ(exponent, expected) << largest;
      }
      for (size_t i = 0; i < 32; ++i) {
        const size_t k = 32 * b + i;
        const int code = static_cast<int>(codes[k / 2]) >> (k % 2 == 0 ? 0 : 4) & 15;
        const double value = double{row[k]} / std::exp2(exponent), found = e2m1_to_f32(static_cast<uint8_t>(code));
        for (int other = 0; other < 16; ++other) {
          ASSERT_LE(std::fabs(found - value), std::fabs(e2m1_to_f32(static_cast<uint8_t>(other)) - value)) << value;
        }
      }
    }
  }
}

TEST(Quantise, fp8_takes_the_largest_magnitude_to_the_largest_code) {
  const std::vector<float> row = random_row(1000, 3);
  const float scale = fp8_scale(largest_magnitude(row));
  std::vector<std::byte> codes(row.size());
  quantise_fp8(row, scale, codes);
  float largest = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    const float value = row[i] / scale, found = e4m3_to_f32(static_cast<uint8_t>(codes[i]));
    ASSERT_LE(std::fabs(found - value), std::max(std::fabs(value) / 16, 0x1p-10f));  // half a step of 3 bits
    largest = std::max(largest, std::fabs(found));
  }
  EXPECT_EQ(largest, kMaxE4m3);
}

TEST(Quantise, zeros_have_a_scale_that_can_be_inverted) {
  EXPECT_EQ(fp8_scale(0), 1.0f);
  EXPECT_TRUE(std::isfinite(1 / fp8_scale(0x1p-140f)));
}

TEST(Quantise, numbers_that_are_none_have_an_infinite_magnitude) {
  for (float bad : {NAN, INFINITY, -INFINITY}) {
    EXPECT_EQ(largest_magnitude(std::vector<float>{1, bad, 2}), INFINITY);
  }
  EXPECT_EQ(largest_magnitude(std::vector<float>{1, -3, 2}), 3.0f);
}

}  // namespace
}  // namespace coprime
