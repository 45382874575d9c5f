// Every code against the format's definition, and every rounding against the nearest of all codes.
#include "base/small_floats.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace coprime {
namespace {

// The finite codes' values of a sign, ascending; place i is code i.
std::vector<double> e4m3_values() {
  std::vector<double> values;
  for (int code = 0; code < 0x7f; ++code) {
    const int e = code >> 3, m = code & 7;
    values.push_back(e == 0 ? m * std::exp2(-9) : (8 + m) * std::exp2(e - 10));
  }
  return values;
}
std::vector<double> e2m1_values() { return {0, 0.5, 1, 1.5, 2, 3, 4, 6}; }

// The code of the nearest value; of two equally near ones the even code; the largest for what lies beyond.
int nearest(const std::vector<double>& values, double magnitude) {
  const auto above = std::ranges::lower_bound(values, magnitude);
  if (above == values.end()) return static_cast<int>(values.size()) - 1;
  const int code = static_cast<int>(above - values.begin());
  if (code == 0) return 0;
  const double low = magnitude - values[static_cast<size_t>(code - 1)], high = *above - magnitude;
  return low < high || (low == high && code % 2 != 0) ? code - 1 : code;
}

// All floats of few mantissa bits of the range, halves between codes and their neighbours among them.
template <class Encode>
void expect_nearest(const std::vector<double>& values, int sign, const Encode& encode) {
  for (uint32_t top = 0; top < 0x7f80; ++top) {
    for (const uint32_t low : {0u, 1u, 0x8000u, 0xffffu}) {
      const float value = std::bit_cast<float>(top << 16 | low);
      ASSERT_EQ(encode(value), nearest(values, value)) << value;
      ASSERT_EQ(encode(-value), nearest(values, value) | sign) << -value;
    }
  }
}

TEST(SmallFloats, e4m3_codes_have_the_formats_values) {
  const std::vector<double> values = e4m3_values();
  for (int code = 0; code < 0x7f; ++code) {
    EXPECT_EQ(e4m3_to_f32(static_cast<uint8_t>(code)), values[static_cast<size_t>(code)]);
    EXPECT_EQ(e4m3_to_f32(static_cast<uint8_t>(code | 0x80)), -values[static_cast<size_t>(code)]);
    EXPECT_EQ(f32_to_e4m3(e4m3_to_f32(static_cast<uint8_t>(code))), code);
  }
  EXPECT_EQ(values.back(), kMaxE4m3);
  EXPECT_TRUE(std::isnan(e4m3_to_f32(0x7f)) && std::isnan(e4m3_to_f32(0xff)));
  EXPECT_TRUE(std::signbit(e4m3_to_f32(0x80)));
}

TEST(SmallFloats, e4m3_is_rounded_to_the_nearest_and_saturates) {
  expect_nearest(e4m3_values(), 0x80, [](float value) { return int{f32_to_e4m3(value)}; });
  EXPECT_EQ(f32_to_e4m3(INFINITY), 0x7e);
  EXPECT_EQ(f32_to_e4m3(NAN) & 0x7f, 0x7f);
}

TEST(SmallFloats, e2m1_is_rounded_to_the_nearest_and_saturates) {
  const std::vector<double> values = e2m1_values();
  for (int code = 0; code < 8; ++code) {
    EXPECT_EQ(e2m1_to_f32(static_cast<uint8_t>(code)), values[static_cast<size_t>(code)]);
    EXPECT_EQ(e2m1_to_f32(static_cast<uint8_t>(code | 8)), -values[static_cast<size_t>(code)]);
  }
  expect_nearest(values, 8, [](float value) { return int{f32_to_e2m1(value)}; });
}

TEST(SmallFloats, e8m0_is_a_power_of_two) {
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(e8m0_to_f32(static_cast<uint8_t>(code)), std::exp2(code - 127.0));
  }
  EXPECT_TRUE(std::isnan(e8m0_to_f32(255)));
}

// floor(log2) of the largest magnitude, one more from 1.75 on, less 2.
TEST(SmallFloats, a_blocks_scale_follows_quarks_even_rule) {
  for (int exponent = -120; exponent < 126; ++exponent) {
    const float power = std::exp2(static_cast<float>(exponent));
    EXPECT_EQ(e8m0_scale(power), 127 + exponent - 2);
    EXPECT_EQ(e8m0_scale(std::nextafter(1.75f, 1.0f) * power), 127 + exponent - 2);
    EXPECT_EQ(e8m0_scale(1.75f * power), 127 + exponent - 1);
  }
  EXPECT_EQ(e8m0_scale(0), 0);
  EXPECT_EQ(e8m0_scale(0x1p-126f), 0);
  EXPECT_EQ(e8m0_scale(0x1.fp127f), 253);
}

}  // namespace
}  // namespace coprime
