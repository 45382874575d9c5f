#include "collective/all_reduce/rank_order_sum.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/number_formats.h"

namespace coprime {
namespace {

template <class Word>
Word sum_of(DType type, const std::vector<Word>& terms) {
  std::vector<const std::byte*> pointers;
  for (const Word& term : terms) pointers.push_back(reinterpret_cast<const std::byte*>(&term));
  Word out;
  sum_in_rank_order(type, pointers, 0, 1, reinterpret_cast<std::byte*>(&out));
  return out;
}

uint16_t bf16_sum(const std::vector<float>& terms) {
  std::vector<uint16_t> words;
  for (const float term : terms) words.push_back(f32_to_bf16(term));
  return sum_of(DType::kBF16, words);
}

TEST(RankOrderSum, adds_in_rank_order_in_f32) {
  EXPECT_EQ(bf16_sum({0x1p24f, 1, -0x1p24f}), f32_to_bf16(0));  // (2^24 + 1) is 2^24 in f32
  EXPECT_EQ(bf16_sum({1, 0x1p24f, -0x1p24f}), f32_to_bf16(0));
  EXPECT_EQ(bf16_sum({0x1p24f, -0x1p24f, 1}), f32_to_bf16(1));
}

TEST(RankOrderSum, rounds_once_and_ties_to_even) {
  EXPECT_EQ(bf16_sum({1, 0x1p-8f}), f32_to_bf16(1));                      // half a step above 1: even
  EXPECT_EQ(bf16_sum({1 + 0x1p-7f, 0x1p-8f}), f32_to_bf16(1 + 0x1p-6f));  // half a step above odd
  EXPECT_EQ(bf16_sum({1, 0x1p-8f, 0x1p-8f}), f32_to_bf16(1 + 0x1p-7f));   // each rounded alone would be 1
  EXPECT_EQ(sum_of<uint16_t>(DType::kF16, {f32_to_f16(65504), f32_to_f16(16)}), f32_to_f16(INFINITY));
}

TEST(RankOrderSum, keeps_the_sign_of_zero_in_all_patterns) {
  for (uint32_t pattern = 0; pattern < 8; ++pattern) {
    std::vector<float> terms;
    for (int rank = 0; rank < 3; ++rank) terms.push_back(pattern >> rank & 1 ? -0.0f : 0.0f);
    EXPECT_EQ(bf16_sum(terms), pattern == 7 ? 0x8000 : 0) << pattern;
  }
}

TEST(RankOrderSum, keeps_subnormals) {
  EXPECT_EQ(sum_of<uint16_t>(DType::kBF16, {0x0001, 0x0001}), 0x0002);
  EXPECT_EQ(sum_of<uint16_t>(DType::kF16, {0x8001, 0x8001, 0x0001}), 0x8001);
  EXPECT_EQ(sum_of<uint32_t>(DType::kF32, {0x00000001u, 0x00000002u}), 3u);
}

TEST(RankOrderSum, has_one_pattern_for_what_is_no_number) {
  for (const uint16_t nan : {uint16_t{0x7f81}, uint16_t{0xffff}, uint16_t{0xfffa}}) {
    EXPECT_EQ(sum_of<uint16_t>(DType::kBF16, {nan, f32_to_bf16(1)}), kNan16);
    EXPECT_EQ(sum_of<uint16_t>(DType::kBF16, {f32_to_bf16(1), nan}), kNan16);
  }
  EXPECT_EQ(sum_of<uint16_t>(DType::kF16, {uint16_t{0x7c00}, uint16_t{0xfc00}}), kNan16);  // inf - inf
  EXPECT_EQ(sum_of<uint32_t>(DType::kF32, {0xfffafffau, 0u}), kNan32);
  EXPECT_EQ(sum_of<uint16_t>(DType::kBF16, {uint16_t{0x7f80}, f32_to_bf16(-1)}), 0x7f80);
}

}  // namespace
}  // namespace coprime
