#include "collective/all_reduce/wht6.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/number_formats.h"
#include "collective/all_reduce/rank_order_sum.h"

namespace coprime {
namespace {

std::vector<uint16_t> rounded(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float value : values) bits.push_back(f32_to_bf16(value));
  return bits;
}

std::vector<float> gaussian(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

Wht6Vector encoded(const std::vector<uint16_t>& bits) {
  return wht6_encode(DType::kBF16, reinterpret_cast<const std::byte*>(bits.data()), static_cast<int64_t>(bits.size()));
}

std::vector<float> summed(const std::vector<Wht6Vector>& terms, size_t elements) {
  std::vector<uint16_t> bits(elements);
  wht6_sum(DType::kBF16, terms, static_cast<int64_t>(elements), reinterpret_cast<std::byte*>(bits.data()));
  std::vector<float> values;
  for (const uint16_t word : bits) values.push_back(bf16_to_f32(word));
  return values;
}

double relative_rms(const std::vector<double>& expected, const std::vector<float>& found) {
  double error = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += (found[i] - expected[i]) * (found[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(error / size);
}

// By the definition, in double: H[i][j] = (-1)^popcount(i & j) / 8.
TEST(WalshHadamard, is_the_orthonormal_matrix_in_natural_order) {
  const std::vector<float> in = gaussian(64, 1);
  std::vector<float> out = in;
  walsh_hadamard(std::span<float, 64>(out));
  for (unsigned i = 0; i < 64; ++i) {
    double sum = 0;
    for (unsigned j = 0; j < 64; ++j) sum += std::popcount(i & j) % 2 == 0 ? in[j] : -in[j];
    EXPECT_NEAR(out[i], sum / 8, 1e-5);
  }
}

// A vector whose transform is known in closed form: 8 times unit vector k transforms to the k-th row of signs.
TEST(Wht6, lays_codes_out_by_lane_iteration_and_element) {
  constexpr int kGroup = 13, kElement = 21;  // lane (13 % 4) * 8 + 2 = 10, iteration 3, element 5
  std::vector<float> values(kWht6ChunkElements);
  for (unsigned j = 0; j < 64; ++j)  // transforms to 31 at kElement, zero elsewhere
    values[kGroup * 64 + j] = std::popcount(j & kElement) % 2 == 0 ? 31.0f / 8 : -31.0f / 8;
  const Wht6Vector wire = encoded(rounded(values));
  ASSERT_EQ(wire.codes.size(), static_cast<size_t>(kWht6ChunkBytes));
  for (int group = 0; group < kWht6ChunkGroups; ++group) EXPECT_EQ(wire.scales[static_cast<size_t>(group)], 0x3f80);
  for (int lane = 0; lane < 32; ++lane) {
    for (int iteration = 0; iteration < 8; ++iteration) {
      for (int element = 0; element < 8; ++element) {
        int code = 0;
        for (int bit = 0; bit < 6; ++bit) {  // bit by bit, as the format is stated
          const int at = 6 * (8 * iteration + element) + bit;
          const int byte = at / 128 * 512 + 16 * lane + at % 128 / 8;
          code |= (static_cast<int>(wire.codes[static_cast<size_t>(byte)]) >> at % 8 & 1) << bit;
        }
        EXPECT_EQ(code, lane == 10 && iteration == 3 && element == 5 ? 63 : 32)
            << lane << " " << iteration << " " << element;
      }
    }
  }
}

TEST(Wht6, keeps_gaussian_rows_within_three_percent_at_any_rank_count) {
  for (const size_t ranks : {1, 2, 3, 8}) {
    std::vector<Wht6Vector> terms;
    std::vector<double> expected(64 * 1024);
    for (size_t rank = 0; rank < ranks; ++rank) {
      const std::vector<uint16_t> bits = rounded(gaussian(expected.size(), static_cast<uint32_t>(rank)));
      for (size_t i = 0; i < bits.size(); ++i) expected[i] += bf16_to_f32(bits[i]);
      terms.push_back(encoded(bits));
    }
    const double error = relative_rms(expected, summed(terms, expected.size()));
    EXPECT_LT(error, 0.03) << ranks;
    EXPECT_GT(error, 0.01) << ranks;  // 6 bits are no more
  }
}

TEST(Wht6, keeps_the_other_channels_beside_one_that_is_forty_times_as_large) {
  std::vector<float> values = gaussian(64 * 1024, 5);
  for (size_t group = 0; group < values.size(); group += 64) values[group + 17] *= 40;
  const std::vector<uint16_t> bits = rounded(values);
  const std::vector<float> found = summed({encoded(bits)}, bits.size());
  std::vector<double> others;
  std::vector<float> found_others;
  for (size_t i = 0; i < bits.size(); ++i) {
    if (i % 64 == 17) continue;
    others.push_back(bf16_to_f32(bits[i]));
    found_others.push_back(found[i]);
  }
  EXPECT_LT(relative_rms(others, found_others), 0.08);
}

TEST(Wht6, zero_groups_and_the_missing_end_of_a_chunk_are_exact) {
  std::vector<float> values = gaussian(64 * 33, 7);  // one group in the second chunk
  std::fill_n(values.begin() + 64 * 4, 64, 0.0f);
  const Wht6Vector wire = encoded(rounded(values));
  EXPECT_EQ(wire.codes.size(), 2u * kWht6ChunkBytes);
  const std::vector<float> found = summed({wire, wire, wire}, values.size());
  for (size_t i = 64 * 4; i < 64 * 5; ++i) EXPECT_EQ(found[i], 0.0f);
  std::vector<float> padded = values;
  padded.resize(2 * kWht6ChunkElements);
  const Wht6Vector full = encoded(rounded(padded));
  EXPECT_EQ(wire.codes, full.codes);
  EXPECT_EQ(wire.scales, full.scales);
}

TEST(Wht6, a_group_that_holds_no_numbers_decodes_to_none_and_spoils_no_other) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), 3e38f}) {
    std::vector<float> values = gaussian(256, 9);
    values[70] = bad;
    if (bad == 3e38f) values[71] = bad;  // their sum overflows
    const Wht6Vector wire = encoded(rounded(values)), good = encoded(rounded(gaussian(256, 9)));
    EXPECT_EQ(wire.scales[1], kNan16);
    const std::vector<float> found = summed({good, wire}, 256), untouched = summed({good, good}, 256);
    for (size_t i = 0; i < 256; ++i) {
      if (i / 64 == 1) {
        EXPECT_TRUE(std::isnan(found[i]));
      } else {
        EXPECT_EQ(found[i], untouched[i]);
      }
    }
  }
}

TEST(Wht6, folds_in_rank_order) {
  const Wht6Vector a = encoded(rounded(gaussian(4096, 1))), b = encoded(rounded(gaussian(4096, 2)));
  std::vector<float> large = gaussian(4096, 3);
  for (float& value : large) value *= 1e6f;
  const Wht6Vector c = encoded(rounded(large));
  EXPECT_EQ(summed({a, b, c}, 4096), summed({b, a, c}, 4096));  // two terms commute
  EXPECT_NE(summed({a, b, c}, 4096), summed({c, b, a}, 4096));
}

}  // namespace
}  // namespace coprime
