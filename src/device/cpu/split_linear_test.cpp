// Products of BF16 weights with inputs in parts of bf16. Kernels whose instructions this CPU lacks run over software
// that stands in for those, so that what is around them is tested everywhere.
#include "device/cpu/split_linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "device/testing.h"
#include "device/testing/software_tiles.h"
#include "hwy/base.h"

namespace coprime {
namespace {

using testing::Matrix;
using testing::random_floats;

namespace tiles {
#include "device/cpu/split_tiles-inl.h"
}
namespace pairs {
#include "device/cpu/split_pairs-inl.h"
}

// vpdbf16ps in plain C++: the odd product first, each fused, subnormals flushed.
struct SoftwarePairs {
  struct Sums {
    float lane[16];
  };
  struct Pairs {
    uint16_t lane[16][2];
  };
  static Sums load(const float* at) {
    Sums sums;
    std::memcpy(&sums, at, sizeof sums);
    return sums;
  }
  static void store(const Sums& sums, float* at) { std::memcpy(at, &sums, sizeof sums); }
  static Pairs pairs(const std::byte* at) {
    Pairs read;
    std::memcpy(&read, at, sizeof read);
    return read;
  }
  static Pairs word(const std::byte* at) {
    Pairs read;
    for (auto& lane : read.lane) std::memcpy(lane, at, sizeof lane);
    return read;
  }
  static Sums dot(Sums sums, const Pairs& a, const Pairs& b) {
    for (int i = 0; i < 16; ++i) {
      for (int half : {1, 0}) {
        sums.lane[i] = flushed(
            std::fma(flushed(bf16_to_f32(a.lane[i][half])), flushed(bf16_to_f32(b.lane[i][half])), sums.lane[i]));
      }
    }
    return sums;
  }
  static float flushed(float value) { return std::abs(value) < 0x1p-126f ? std::copysign(0.0f, value) : value; }
};

struct Kernel {
  const char* name;
  SplitFunctions functions;
};

// Those in software, and those that this CPU runs.
std::vector<Kernel> kernels() {
  std::vector<Kernel> all = {
      {"tiles in software", {SplitForm::kTiles, tiles::multiply<testing::SoftwareTiles>}},
      {"pairs in software", {SplitForm::kWords, pairs::multiply<SoftwarePairs>}},
  };
  for (const auto& row : split_kernels()) {
    if (row.isa <= best_isa(Isa::kAmx) && missing_feature(row.features, cpu_features()) == nullptr) {
      all.push_back({row.name, row.fn});
    }
  }
  return all;
}

struct Case {
  Weight weight;
  std::vector<float> values, bias;
  Matrix x;
};

Case make_case(int64_t m, int64_t n, int64_t k, bool bias) {
  static const auto device = testing::cpu_device(Isa::kAvx2);
  Case made{{}, random_floats(static_cast<size_t>(n * k), 1, 1.0f, DType::kBF16), {}, testing::random_matrix(m, k, 2)};
  made.weight = testing::packed(*device, DType::kBF16, n, k, made.values);
  if (bias) made.bias = random_floats(static_cast<size_t>(n), 3);
  return made;
}

struct Split {
  int parts = 2;
  int64_t tiles_a_call = 1 << 20;
};

std::vector<float> run(const Kernel& kernel, const Case& c, View x, Split split = {}) {
  SplitInputs inputs{nullptr, x.rows, x.columns, split.parts, kernel.functions.form};
  Buffer memory(static_cast<size_t>(std::max<int64_t>(inputs.bytes(), 64)));
  inputs.data = memory.data();
  const int64_t half = x.rows / 2 / 16 * 16;  // a whole number of groups
  split_inputs({x, inputs, 0, half});
  split_inputs({x, inputs, half, x.rows});
  Matrix y(x.rows, c.weight.rows, 3);  // rows apart: nothing may be written between them
  std::fill(y.data.begin(), y.data.end(), 77.0f);
  SplitWork work{.weight = linear_values(c.weight).bytes.data(),
                 .bias = c.bias.empty() ? nullptr : c.bias.data(),
                 .rows = c.weight.rows,
                 .x = inputs,
                 .y = y.view()};
  for (; work.last_tile < tiles_of(c.weight.rows); work.first_tile = work.last_tile) {
    work.last_tile = std::min(tiles_of(c.weight.rows), work.first_tile + split.tiles_a_call);
    kernel.functions.multiply(work);
  }
  return y.data;
}

TEST(SplitLinear, runs_on_these_instruction_sets) {
  for (const Kernel& kernel : kernels()) std::printf("%s\n", kernel.name);
  EXPECT_GE(kernels().size(), 2u);
}

// The bound that split_linear.h states.
void expect_close(const Kernel& kernel, Case& c, int parts) {
  const std::vector<float> y = run(kernel, c, c.x.view(), {.parts = parts});
  const int64_t k = c.x.columns, n = c.weight.rows;
  const double lost = parts == 2 ? 0x1p-17 : 0x1p-8;
  for (int64_t r = 0; r < c.x.rows; ++r) {
    for (int64_t i = 0; i < n; ++i) {
      double exact = 0, size = 0;
      for (int64_t j = 0; j < k; ++j) {
        const double product = double{c.x.view().row(r)[j]} * c.values[static_cast<size_t>(i * k + j)];
        exact += product;
        size += std::abs(product);
      }
      if (!c.bias.empty()) exact += c.bias[static_cast<size_t>(i)], size += std::abs(c.bias[static_cast<size_t>(i)]);
      const double bound = size * (lost + (2.0 * static_cast<double>(k) + 2) * 0x1p-24);
      ASSERT_NEAR(y[static_cast<size_t>(r * (n + 3) + i)], exact, bound)
          << kernel.name << " " << c.x.rows << " x " << n << " x " << k << ", " << parts << " parts";
    }
    for (int64_t i = n; i < n + 3 && r + 1 < c.x.rows; ++i) ASSERT_EQ(y[static_cast<size_t>(r * (n + 3) + i)], 77.0f);
  }
}

TEST(SplitLinear, is_within_its_bound_for_every_shape) {
  for (const Kernel& kernel : kernels()) {
    for (int64_t m : {1, 2, 7, 8, 9, 17, 33}) {
      for (int64_t n : {1, 16, 33, 150}) {
        for (int64_t k : {0, 1, 2, 31, 32, 33, 96, 100}) {
          Case c = make_case(m, n, k, (n + k) % 2 == 1);
          for (int parts : {1, 2}) expect_close(kernel, c, parts);
        }
      }
    }
  }
}

TEST(SplitLinear, is_within_its_bound_where_columns_and_rows_go_in_blocks) {
  for (const Kernel& kernel : kernels()) {
    for (auto [m, n, k] : {std::tuple{1, 200, 1300}, {270, 40, 520}, {9, 33, 1537}}) {
      Case c = make_case(m, n, k, true);
      expect_close(kernel, c, 2);
    }
  }
}

// A mistake in the low part would hide behind the bound of random numbers: here it is all that is left.
TEST(SplitLinear, two_parts_keep_what_one_loses) {
  for (const Kernel& kernel : kernels()) {
    Case c = make_case(3, 20, 64, false);
    for (float& value : c.x.data) value = 1.0f + 0x1p-9f;
    const std::vector<float> two = run(kernel, c, c.x.view());
    for (int64_t i = 0; i < 20; ++i) {
      float sum = 0;
      for (int64_t j = 0; j < 64; ++j) sum += c.values[static_cast<size_t>(i * 64 + j)];
      const auto at = static_cast<size_t>(i);
      const float one = run(kernel, c, c.x.view(), {.parts = 1})[at];
      EXPECT_NEAR(one, sum, 1e-4) << kernel.name;
      EXPECT_NEAR(two[at], sum * (1 + 0x1p-9f), 1e-4) << kernel.name;
    }
  }
}

TEST(SplitLinear, a_row_is_alone_whatever_the_number_of_rows_and_the_split) {
  for (const Kernel& kernel : kernels()) {
    Case c = make_case(60, 150, 1100, true);
    for (int parts : {1, 2}) {
      const std::vector<float> all = run(kernel, c, c.x.view(), {.parts = parts});
      for (int64_t tiles : {1, 2, 3, 5}) {
        ASSERT_TRUE(testing::same_bits(run(kernel, c, c.x.view(), {.parts = parts, .tiles_a_call = tiles}), all))
            << kernel.name << " " << tiles << " tiles a call";
      }
      for (auto [first, count] : {std::pair<int64_t, int64_t>{0, 1}, {59, 1}, {3, 2}, {7, 8}, {20, 17}}) {
        ASSERT_TRUE(testing::same_bits(run(kernel, c, c.x.view().row_range(first, count), {.parts = parts}),
                                       {all.begin() + first * 153, all.begin() + (first + count) * 153}))
            << kernel.name << " rows " << first << "+" << count;
      }
    }
  }
}

// The instructions themselves, where this CPU has them, against what stands in for them.
TEST(SplitLinear, software_has_the_bits_of_the_instructions) {
  const auto all = kernels();
  Case c = make_case(40, 70, 1100, true);
  for (size_t i = 2; i < all.size(); ++i) {
    const Kernel& software = all[all[i].functions.form == SplitForm::kTiles ? 0 : 1];
    for (int parts : {1, 2}) {
      EXPECT_TRUE(testing::same_bits(run(all[i], c, c.x.view(), {.parts = parts}),
                                     run(software, c, c.x.view(), {.parts = parts})))
          << all[i].name << ", " << parts << " parts";
    }
  }
}

TEST(SplitLinear, extreme_inputs_keep_their_relative_size) {
  for (const Kernel& kernel : kernels()) {
    Case c = make_case(1, 16, 70, false);
    Matrix large = c.x, small = c.x;
    for (float& value : large.data) value *= 0x1p90f;
    for (float& value : small.data) value *= 0x1p-90f;
    const std::vector<float> y = run(kernel, c, c.x.view()), up = run(kernel, c, large.view()),
                             down = run(kernel, c, small.view());
    for (size_t i = 0; i < 16; ++i) {
      EXPECT_EQ(up[i], y[i] * 0x1p90f) << kernel.name;
      EXPECT_EQ(down[i], y[i] * 0x1p-90f) << kernel.name;
    }
  }
}

TEST(SplitLinear, a_nan_or_an_infinity_in_a_row_reaches_all_of_its_outputs_and_no_other_row) {
  for (const Kernel& kernel : kernels()) {
    for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      Case c = make_case(12, 20, 64, false);
      c.x.view().row(1)[50] = bad;
      const std::vector<float> y = run(kernel, c, c.x.view());
      for (int64_t r = 0; r < 12; ++r) {
        for (int64_t i = 0; i < 20; ++i)
          EXPECT_EQ(std::isnan(y[static_cast<size_t>(r * 23 + i)]), r == 1) << kernel.name;
      }
    }
  }
}

TEST(SplitTable, the_best_row_that_fits_is_chosen_and_the_others_say_why) {
  const auto rows = split_kernels();
  const auto chosen = [&](Isa isa, CpuFeatures features, MathMode math = MathMode::kFast) {
    const int index = select_kernel(rows, {isa, DType::kBF16, features, math});
    return index < 0 ? std::string("none") : std::string(rows[static_cast<size_t>(index)].name);
  };
  EXPECT_EQ(chosen(Isa::kAmx, {.avx512_bf16 = true}), "split amx BF16");
  EXPECT_EQ(chosen(Isa::kAvx512, {.avx512_bf16 = true}), "split avx512-bf16 BF16");
  EXPECT_EQ(chosen(Isa::kAmx, {}, MathMode::kSplit), "split amx BF16");
  EXPECT_EQ(chosen(Isa::kAvx512, {.avx512_bf16 = true}, MathMode::kSplit), "none");
  EXPECT_EQ(chosen(Isa::kAmx, {.avx512_bf16 = true}, MathMode::kF32), "none");
  EXPECT_EQ(chosen(Isa::kAvx512, {}), "none");
  EXPECT_EQ(chosen(Isa::kAvx2, {.avx512_bf16 = true}), "none");
  EXPECT_EQ(verdict_lines(judge_kernels(rows, {Isa::kAvx512, DType::kBF16})),
            "split amx BF16: needs amx, the best to use is avx512\n"
            "split avx512-bf16 BF16: needs AVX512-BF16 at full rate, which this CPU lacks\n");
  EXPECT_EQ(verdict_lines(judge_kernels(rows, {Isa::kAvx512, DType::kBF16, {.avx512_bf16 = true}, MathMode::kSplit})),
            "split amx BF16: needs amx, the best to use is avx512\n"
            "split avx512-bf16 BF16: is for --math fast, not split\n");
}

}  // namespace
}  // namespace coprime
