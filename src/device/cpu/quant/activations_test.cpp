#include "device/cpu/quant/activations.h"

#include <gtest/gtest.h>

#include "device/cpu/quant/quant_testing.h"
#include "device/testing.h"

namespace coprime {
namespace {

using testing::Matrix;
using testing::rounded;
using testing::RoundedInput;

constexpr ActivationForm kForms[] = {ActivationForm::kTwoBytes, ActivationForm::kOneByte, ActivationForm::kHalves};

const ActivationBlock& block_of(const RoundedInput& input, int64_t row, int64_t block) {
  return *reinterpret_cast<const ActivationBlock*>(input.blocks.row(row) +
                                                   block * activation_block_bytes(input.blocks.form));
}

std::vector<int> integers(const RoundedInput& input, int64_t row, int64_t block) {
  int16_t q[kQuantBlock];
  read_activations(input.blocks.form, block_of(input, row, block), q);
  return {std::begin(q), std::end(q)};
}

TEST(QuantActivations, are_within_half_a_step_of_what_they_round) {
  Matrix x = testing::random_matrix(3, 256, 1);
  for (MathMode math : {MathMode::kSplit, MathMode::kFast}) {
    const RoundedInput input = rounded(quantise_reference, ActivationForm::kHalves, math, x.view(), 8);
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t b = 0; b < 8; ++b) {
        const double scale = block_of(input, r, b).scale;
        const std::vector<int> q = integers(input, r, b);
        int largest = 0;
        for (int i = 0; i < kQuantBlock; ++i) {
          const double value = x.view().row(r)[32 * b + i];
          EXPECT_LE(std::abs(value - scale * q[static_cast<size_t>(i)]), scale * 0.501);
          largest = std::max(largest, std::abs(q[static_cast<size_t>(i)]));
        }
        EXPECT_EQ(largest, math == MathMode::kSplit ? 16255 : 127);
      }
    }
  }
}

TEST(QuantActivations, every_form_holds_the_same_integers_and_sums) {
  Matrix x = testing::random_matrix(2, 160, 2);
  const RoundedInput halves = rounded(quantise_reference, ActivationForm::kHalves, MathMode::kFast, x.view(), 5);
  const RoundedInput bytes = rounded(quantise_reference, ActivationForm::kOneByte, MathMode::kFast, x.view(), 5);
  for (int64_t b = 0; b < 5; ++b) EXPECT_EQ(integers(halves, 1, b), integers(bytes, 1, b));
  const RoundedInput split = rounded(quantise_reference, ActivationForm::kHalves, MathMode::kSplit, x.view(), 5);
  const RoundedInput parts = rounded(quantise_reference, ActivationForm::kTwoBytes, MathMode::kSplit, x.view(), 5);
  for (int64_t b = 0; b < 5; ++b) {
    const std::vector<int> q = integers(split, 1, b);
    EXPECT_EQ(q, integers(parts, 1, b));
    const ActivationBlock& head = block_of(parts, 1, b);
    int first = 0, second = 0;
    for (size_t i = 0; i < 16; ++i) first += q[i], second += q[16 + i];
    EXPECT_EQ(head.integer_half_sum[0], first);
    EXPECT_EQ(head.integer_half_sum[1], second);
    EXPECT_EQ(head.integer_sum, first + second);
    EXPECT_EQ(head.sum, head.scale * static_cast<float>(first + second));
  }
}

TEST(QuantActivations, avx2_has_the_references_bits_for_every_form_and_place) {
  if (best_isa(Isa::kAvx2) != Isa::kAvx2) GTEST_SKIP() << "this CPU has no AVX2";
  for (ActivationForm form : kForms) {
    for (MathMode math : {MathMode::kSplit, MathMode::kFast}) {
      if (form == ActivationForm::kOneByte && math == MathMode::kSplit) continue;
      for (auto [columns, lead, blocks] : {std::tuple<int64_t, int64_t, int64_t>{256, 0, 8},
                                           {200, 0, 8},
                                           {1, 31, 1},
                                           {64, 192, 8},
                                           {100, 130, 8},
                                           {33, 16, 2},
                                           {32, 0, 1}}) {
        Matrix x = testing::random_matrix(4, columns, static_cast<uint32_t>(columns), 3.0f);
        for (float& value : x.data) {
          if (&value - x.data.data() > 2 * columns) value *= 1e-33f;
        }
        x.data[0] = 1e38f;
        x.data.back() = std::numeric_limits<float>::infinity();
        const RoundedInput slow = rounded(quantise_reference, form, math, x.view(), blocks, lead);
        const RoundedInput fast = rounded(quantise_avx2, form, math, x.view(), blocks, lead);
        ASSERT_EQ(std::memcmp(slow.memory.data(), fast.memory.data(), slow.memory.size()), 0)
            << static_cast<int>(form) << " " << math_name(math) << " " << columns << " after " << lead;
      }
    }
  }
}

TEST(QuantActivations, columns_that_the_input_has_not_are_zero) {
  Matrix x(1, 40, std::vector<float>(40, 2.0f));
  const RoundedInput input = rounded(quantise_reference, ActivationForm::kHalves, MathMode::kSplit, x.view(), 8, 100);
  for (int64_t b = 0; b < 8; ++b) {
    const std::vector<int> q = integers(input, 0, b);
    for (int i = 0; i < kQuantBlock; ++i) {
      const int64_t column = 32 * b + i;
      EXPECT_EQ(q[static_cast<size_t>(i)], column >= 100 && column < 140 ? kSplitLevels : 0) << column;
    }
  }
}

TEST(QuantActivations, an_infinity_or_a_nan_makes_its_block_nan_and_tiny_ones_are_zero) {
  for (float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Matrix x(1, 64, std::vector<float>(64, 1.0f));
    x.data[5] = bad;
    const RoundedInput input = rounded(quantise_reference, ActivationForm::kHalves, MathMode::kSplit, x.view(), 2);
    EXPECT_TRUE(std::isnan(block_of(input, 0, 0).scale));
    EXPECT_EQ(block_of(input, 0, 1).scale, 1.0f / kSplitLevels);
  }
  Matrix x(1, 32, std::vector<float>(32, 1e-31f));
  const RoundedInput input = rounded(quantise_reference, ActivationForm::kHalves, MathMode::kSplit, x.view(), 1);
  EXPECT_EQ(block_of(input, 0, 0).scale, 0.0f);
  EXPECT_EQ(integers(input, 0, 0), std::vector<int>(32));
}

}  // namespace
}  // namespace coprime
