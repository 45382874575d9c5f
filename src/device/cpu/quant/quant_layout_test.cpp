// Packed weights keep every value: what comes back is what the file's own formula gives, for each type of GGUF.
#include "device/cpu/quant/quant_layout.h"

#include <gtest/gtest.h>

#include "device/cpu/quant/quant_testing.h"
#include "device/testing.h"

namespace coprime {
namespace {

using testing::QuantMatrix;
using testing::random_quant_matrix;

// ---- the formulas of the file's blocks, element by element, as GGUF states them

float half(const uint8_t* at) { return f16_to_f32(static_cast<uint16_t>(at[0] | at[1] << 8)); }
int nibble(const uint8_t* quants, int j) { return j < 16 ? quants[j] & 15 : quants[j - 16] >> 4; }
int bit(const uint8_t* bits, int j) { return bits[j / 8] >> (j % 8) & 1; }

struct FactorPair {
  int scale, minimum;
};
FactorPair k4_factors(const uint8_t* s, int j) {
  if (j < 4) return {s[j] & 63, s[j + 4] & 63};
  return {(s[j + 4] & 15) | (s[j - 4] >> 6) << 4, (s[j + 4] >> 4) | (s[j] >> 6) << 4};
}

int q3_factor(const uint8_t* s, int j) {
  const int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4;
  const int high = s[8 + j % 4] >> (2 * (j / 4)) & 3;
  return (low | high << 4) - 32;
}

// Element e of the block at `in`.
float file_value(DType type, const uint8_t* in, int e) {
  static constexpr float kE2m1[] = {0, .5f, 1, 1.5f, 2, 3, 4, 6, 0, -.5f, -1, -1.5f, -2, -3, -4, -6};
  const int sub = e / 32, within = e % 32;
  switch (type) {
    case DType::kQ4_0:
      return half(in) * static_cast<float>(nibble(in + 2, e) - 8);
    case DType::kQ4_1:
      return half(in) * static_cast<float>(nibble(in + 4, e)) + half(in + 2);
    case DType::kQ5_0:
      return half(in) * static_cast<float>((nibble(in + 6, e) | bit(in + 2, e) << 4) - 16);
    case DType::kQ5_1:
      return half(in) * static_cast<float>(nibble(in + 8, e) | bit(in + 4, e) << 4) + half(in + 2);
    case DType::kQ8_0:
      return half(in) * static_cast<float>(static_cast<int8_t>(in[2 + e]));
    case DType::kMxfp4:
      return std::ldexp(kE2m1[nibble(in + 1, e)], in[0] - 127);
    case DType::kQ2_K: {
      const int scales = in[e / 16], q = in[16 + e / 128 * 32 + within] >> (2 * (sub % 4)) & 3;
      return half(in + 80) * static_cast<float>(scales & 15) * static_cast<float>(q) -
             half(in + 82) * static_cast<float>(scales >> 4);
    }
    case DType::kQ3_K: {
      const int low = in[32 + e / 128 * 32 + within] >> (2 * (sub % 4)) & 3, high = in[within] >> sub & 1;
      return half(in + 108) * static_cast<float>(q3_factor(in + 96, e / 16)) * static_cast<float>(low - (high ? 0 : 4));
    }
    case DType::kQ4_K: {
      const FactorPair factors = k4_factors(in + 4, sub);
      const int q = in[16 + e / 64 * 32 + within] >> (4 * (sub % 2)) & 15;
      return half(in) * static_cast<float>(factors.scale) * static_cast<float>(q) -
             half(in + 2) * static_cast<float>(factors.minimum);
    }
    case DType::kQ5_K: {
      const FactorPair factors = k4_factors(in + 4, sub);
      const int q = (in[48 + e / 64 * 32 + within] >> (4 * (sub % 2)) & 15) | (in[16 + within] >> sub & 1) << 4;
      return half(in) * static_cast<float>(factors.scale) * static_cast<float>(q) -
             half(in + 2) * static_cast<float>(factors.minimum);
    }
    default: {  // Q6_K
      const int part = e / 128, quarter = e % 128 / 32;
      const int low = in[64 * part + 32 * (quarter % 2) + within] >> (quarter < 2 ? 0 : 4) & 15;
      const int high = in[128 + 32 * part + within] >> (2 * quarter) & 3;
      return half(in + 208) * static_cast<float>(static_cast<int8_t>(in[192 + e / 16])) *
             static_cast<float>((low | high << 4) - 32);
    }
  }
}

std::vector<float> file_values(const QuantMatrix& matrix, int64_t row) {
  const BlockShape shape = block_shape(matrix.type);
  const auto* in = reinterpret_cast<const uint8_t*>(matrix.file_row(row).data());
  std::vector<float> values;
  for (int64_t k = 0; k < matrix.blocks * kQuantBlock; ++k) {
    const auto e = static_cast<int>(k % shape.elements);
    values.push_back(file_value(matrix.type, in + k / shape.elements * shape.bytes, e) + 0.0f);
  }
  return values;
}

TEST(QuantLayout, a_packed_row_has_the_values_of_the_files_formula_bit_for_bit) {
  for (DType type : kQuantTypes) {
    const QuantMatrix matrix = random_quant_matrix(type, 37, 24, 1);
    for (int64_t row = 0; row < matrix.rows; ++row) {
      std::vector<float> values(static_cast<size_t>(matrix.blocks * kQuantBlock));
      read_quant_row(type, matrix.tiles.data(), matrix.blocks, row, 0, static_cast<int64_t>(values.size()),
                     values.data());
      ASSERT_TRUE(testing::same_bits(values, file_values(matrix, row))) << dtype_name(type) << " row " << row;
    }
  }
}

TEST(QuantLayout, a_part_of_a_row_begins_and_ends_inside_blocks) {
  for (DType type : kQuantTypes) {
    const QuantMatrix matrix = random_quant_matrix(type, 17, 16, 2);
    const std::vector<float> all = file_values(matrix, 16);
    std::vector<float> part(301);
    read_quant_row(type, matrix.tiles.data(), matrix.blocks, 16, 100, 301, part.data());
    EXPECT_TRUE(testing::same_bits(part, {all.begin() + 100, all.begin() + 401})) << dtype_name(type);
  }
}

TEST(QuantLayout, every_kernel_widens_a_tile_to_the_same_values) {
  for (DType type : kQuantTypes) {
    const QuantMatrix matrix = random_quant_matrix(type, 16, 40, 3);
    for (const QuantKernelRow* kernel : testing::runnable_kernels(type)) {
      for (auto [first, count] : {std::pair<int64_t, int64_t>{0, 1280}, {7, 1200}, {520, 3}, {64, 576}, {1279, 1}}) {
        const Buffer tile(static_cast<size_t>(count * kQuantRows) * sizeof(float));
        kernel->functions.widen({matrix.tiles.data(), first, count, tile.as<float>()});
        for (int64_t row = 0; row < kQuantRows; ++row) {
          std::vector<float> values, all = file_values(matrix, row);
          for (int64_t k = 0; k < count; ++k) values.push_back(tile.as<float>()[k * kQuantRows + row]);
          ASSERT_TRUE(testing::same_bits(values, {all.begin() + first, all.begin() + first + count}))
              << kernel->name << " row " << row << " columns " << first << "+" << count;
        }
      }
    }
  }
}

TEST(QuantLayout, subnormal_and_largest_scales_keep_their_bits) {
  for (int e : {0, 1, 2, 3, 127, 252}) {
    QuantMatrix matrix = random_quant_matrix(DType::kMxfp4, 16, 1, 4);
    for (size_t at = 0; at < matrix.file.size(); at += 17) matrix.file[at] = static_cast<std::byte>(e);
    matrix.pack();
    for (const QuantKernelRow* kernel : testing::runnable_kernels(DType::kMxfp4)) {
      const Buffer tile(kQuantBlock * kQuantRows * sizeof(float));
      kernel->functions.widen({matrix.tiles.data(), 0, kQuantBlock, tile.as<float>()});
      std::vector<float> values;
      for (int k = 0; k < kQuantBlock; ++k) values.push_back(tile.as<float>()[k * kQuantRows]);
      EXPECT_TRUE(testing::same_bits(values, file_values(matrix, 0))) << kernel->name << " " << e;
    }
  }
}

TEST(QuantLayout, takes_no_more_than_the_files_bytes_but_for_factors_of_a_byte) {
  for (DType type : kQuantTypes) {
    const double file = 16.0 * 2 * block_shape(type).bytes * (block_shape(type).elements == 256 ? 1 : 8);
    const double ratio = static_cast<double>(quant_tile_bytes(type, 16)) / file;
    const bool widened = type == DType::kQ3_K || type == DType::kQ4_K || type == DType::kQ5_K;
    EXPECT_LE(ratio, widened ? 1.037 : 1.0) << dtype_name(type);
  }
}

TEST(QuantLayout, rows_past_the_last_are_zero) {
  for (DType type : kQuantTypes) {
    const QuantMatrix matrix = random_quant_matrix(type, 3, 8, 5);
    std::vector<float> values(256, 1.0f);
    read_quant_row(type, matrix.tiles.data(), 8, 7, 0, 256, values.data());
    EXPECT_TRUE(testing::same_bits(values, std::vector<float>(256))) << dtype_name(type);
  }
}

}  // namespace
}  // namespace coprime
