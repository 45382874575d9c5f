#include "collective/all_reduce/add_norm_quant.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/number_formats.h"
#include "base/small_floats.h"

namespace coprime {
namespace {

struct Row {
  std::vector<uint16_t> sum, residual, normed;
  std::vector<float> weight;
  std::vector<uint8_t> codes;
  float scale = 0;
};

Row random_row(int64_t columns, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Row row;
  for (int64_t i = 0; i < columns; ++i) {
    row.sum.push_back(f32_to_bf16(normal(random)));
    row.residual.push_back(f32_to_bf16(3 * normal(random)));
    row.weight.push_back(0.5f + 0.1f * normal(random));
  }
  row.normed.resize(row.sum.size());
  row.codes.resize(row.sum.size());
  return row;
}

void run(Row& row, bool one_plus) {
  std::vector<float> scratch(row.sum.size());
  add_norm_quant_row(row.sum, {row.weight, 1e-6f, one_plus}, row.residual, row.normed, row.codes, row.scale, scratch);
}

TEST(AddNormQuant, is_the_norm_of_the_unrounded_residual_in_e4m3) {
  for (const int64_t columns : {8, 5120, 8200, 16384}) {
    for (const bool one_plus : {false, true}) {
      Row row = random_row(columns, static_cast<uint32_t>(columns));
      const Row before = row;
      run(row, one_plus);
      double squares = 0, largest = 0;
      std::vector<double> values, normed;
      for (size_t i = 0; i < row.sum.size(); ++i) {
        values.push_back(double{bf16_to_f32(before.sum[i])} + bf16_to_f32(before.residual[i]));
        squares += values[i] * values[i];
        EXPECT_EQ(row.residual[i], f32_to_bf16(static_cast<float>(values[i])));
      }
      const double inverse = 1 / std::sqrt(squares / static_cast<double>(columns) + 1e-6);
      for (size_t i = 0; i < row.sum.size(); ++i) {
        normed.push_back(values[i] * inverse * (one_plus ? 1.0 + before.weight[i] : before.weight[i]));
        EXPECT_NEAR(bf16_to_f32(row.normed[i]), normed[i], 0.005 * std::fabs(normed[i]));
        largest = std::max(largest, std::fabs(double{bf16_to_f32(row.normed[i])}));
      }
      EXPECT_FLOAT_EQ(row.scale, static_cast<float>(largest / 448));
      for (size_t i = 0; i < row.sum.size(); ++i) {
        EXPECT_NEAR(e4m3_to_f32(row.codes[i]) * row.scale, bf16_to_f32(row.normed[i]),
                    std::max(0.0626 * std::fabs(normed[i]), 0.0021 * row.scale));
      }
    }
  }
}

TEST(AddNormQuant, a_row_of_zeros_has_the_smallest_scale) {
  Row row = random_row(64, 1);
  std::fill(row.sum.begin(), row.sum.end(), uint16_t{0x8000});
  std::fill(row.residual.begin(), row.residual.end(), uint16_t{0});
  run(row, false);
  EXPECT_EQ(row.scale, 1.0f / (448 * 512));
  EXPECT_EQ(row.codes, std::vector<uint8_t>(64));
}

TEST(AddNormQuant, what_is_no_number_spoils_its_row_and_has_one_code) {
  Row row = random_row(64, 2);
  row.sum[3] = 0x7f80;
  row.residual[3] = 0xff80;  // inf - inf
  run(row, false);
  EXPECT_EQ(row.residual[3], 0x7fff);
  EXPECT_EQ(row.codes[3], 0x7f);
  EXPECT_EQ(row.scale, 1.0f / (448 * 512));
  EXPECT_EQ(row.codes[4], 0x7f);
}

TEST(AddNormQuant, threads_cover_the_columns_evenly) {
  EXPECT_EQ(norm_threads(8), 32);
  EXPECT_EQ(norm_threads(5120), 640);
  EXPECT_EQ(norm_threads(8192), 512);
  EXPECT_EQ(norm_threads(16384), 704);
  for (int64_t columns = 8; columns <= kMaxNormColumns; columns += 8) {
    EXPECT_LE(norm_threads(columns), kMaxNormThreads);
    EXPECT_GE(norm_threads(columns) * norm_groups(columns) * 8, columns);
    EXPECT_LE(norm_groups(columns), 3);
  }
}

}  // namespace
}  // namespace coprime
