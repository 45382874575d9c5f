// Products with quantised weights: close to the weights' and inputs' real product, and equal in every bit on every
// instruction set, for every number of rows and every split.
#include "device/quant/quant_kernels.h"

#include <gtest/gtest.h>

#include "device/quant/quant_testing.h"
#include "device/testing.h"

namespace coprime {
namespace {

using testing::Matrix;
using testing::QuantMatrix;
using testing::random_quant_matrix;

constexpr MathMode kMaths[] = {MathMode::kSplit, MathMode::kFast};

struct Call {
  MathMode math = MathMode::kSplit;
  const std::vector<float>* bias = nullptr;
  int64_t tiles_a_call = 1 << 20;  // a split of the outputs
};

std::vector<float> run(const QuantKernelRow& kernel, const QuantMatrix& weight, View x, const Call& call = {}) {
  const ActivationForm form = kernel.functions.form(call.math, x.rows);
  const auto input = testing::rounded(kernel.functions.quantise, form, call.math, x);
  Matrix y(x.rows, weight.rows, 3);  // rows apart: nothing may be written between them
  std::fill(y.data.begin(), y.data.end(), 77.0f);
  QuantWork work{weight.tiles.data(),
                 call.bias == nullptr ? nullptr : call.bias->data(),
                 weight.rows,
                 0,
                 0,
                 input.blocks,
                 y.view()};
  for (; work.last_tile < quant_tiles(weight.rows); work.first_tile = work.last_tile) {
    work.last_tile = std::min(quant_tiles(weight.rows), work.first_tile + call.tiles_a_call);
    kernel.functions.multiply(work);
  }
  return y.data;
}

const QuantKernelRow& reference_of(DType type) {
  const int index = select_quant_kernel(quant_kernels(), {Isa::kReference, {}, type});
  return quant_kernels()[static_cast<size_t>(index)];
}

TEST(QuantKernels, run_on_these_instruction_sets) {
  std::string names;
  for (const QuantKernelRow* kernel : testing::runnable_kernels(DType::kQ4_0))
    names += fmt::format("{}; ", kernel->name);
  RecordProperty("kernels", names);
  std::printf("kernels that this CPU runs: %s\n", names.c_str());
  EXPECT_NE(names.find("reference"), std::string::npos);
}

// Each input is off by at most half a step of its block (and the rounding of s), sums by float's rounding.
TEST(QuantKernels, are_within_half_a_step_of_the_inputs_of_the_real_product) {
  for (DType type : kQuantTypes) {
    const QuantMatrix weight = random_quant_matrix(type, 20, 48, 7);
    Matrix x = testing::random_matrix(2, 48 * 32, 8);
    for (const QuantKernelRow* kernel : testing::runnable_kernels(type)) {
      for (MathMode math : kMaths) {
        const std::vector<float> y = run(*kernel, weight, x.view(), {.math = math});
        for (int64_t r = 0; r < 2; ++r) {
          for (int64_t n = 0; n < weight.rows; ++n) {
            std::vector<float> w(48 * 32);
            read_quant_row(type, weight.tiles.data(), 48, n, 0, 48 * 32, w.data());
            double exact = 0, bound = 0;
            for (int64_t b = 0; b < 48; ++b) {
              double largest = 0, weights = 0, products = 0;
              for (int64_t k = 32 * b; k < 32 * b + 32; ++k) {
                const double value = x.view().row(r)[k], each = w[static_cast<size_t>(k)];
                exact += value * each;
                products += std::abs(value * each);
                weights += std::abs(each);
                largest = std::max(largest, std::abs(value));
              }
              bound += 0.501 * largest / (math == MathMode::kSplit ? kSplitLevels : kFastLevels) * weights;
              bound += 1e-5 * products;
            }
            const double value = y[static_cast<size_t>(r * (weight.rows + 3) + n)];
            ASSERT_LE(std::abs(value - exact), bound) << kernel->name << " " << math_name(math) << " output " << n;
          }
        }
      }
    }
  }
}

TEST(QuantKernels, have_the_references_bits_for_every_shape) {
  for (DType type : kQuantTypes) {
    const int64_t unit = quant_format(type).super() ? 8 : 1;
    for (const QuantKernelRow* kernel : testing::runnable_kernels(type)) {
      for (MathMode math : kMaths) {
        for (int64_t n : {1, 16, 33, 50}) {
          for (int64_t units : {1, 3}) {
            const QuantMatrix weight = random_quant_matrix(type, n, units * unit, static_cast<uint32_t>(n));
            const std::vector<float> bias = testing::random_floats(static_cast<size_t>(n), 9);
            for (int64_t m : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 17}) {
              Matrix x = testing::random_matrix(m, units * unit * 32, 10);
              const Call call{.math = math, .bias = n % 2 == 0 ? &bias : nullptr};
              ASSERT_TRUE(testing::same_bits(run(*kernel, weight, x.view(), call),
                                             run(reference_of(type), weight, x.view(), call)))
                  << kernel->name << " " << math_name(math) << " " << m << " x " << n << " x " << 32 * units * unit;
            }
          }
        }
      }
    }
  }
}

TEST(QuantKernels, have_the_references_bits_where_columns_and_rows_go_in_blocks) {
  for (DType type : kQuantTypes) {
    const QuantMatrix weight = random_quant_matrix(type, 40, 56, 11);
    const std::vector<float> bias = testing::random_floats(40, 12);
    Matrix x = testing::random_matrix(173, 56 * 32, 13);
    for (const QuantKernelRow* kernel : testing::runnable_kernels(type)) {
      for (MathMode math : kMaths) {
        const Call call{.math = math, .bias = &bias};
        ASSERT_TRUE(
            testing::same_bits(run(*kernel, weight, x.view(), call), run(reference_of(type), weight, x.view(), call)))
            << kernel->name << " " << math_name(math);
      }
    }
  }
}

TEST(QuantKernels, a_row_is_alone_whatever_the_number_of_rows_and_the_split) {
  for (DType type : kQuantTypes) {
    const QuantMatrix weight = random_quant_matrix(type, 90, 24, 14);
    Matrix x = testing::random_matrix(20, 24 * 32, 15);
    for (const QuantKernelRow* kernel : testing::runnable_kernels(type)) {
      for (MathMode math : kMaths) {
        const std::vector<float> all = run(*kernel, weight, x.view(), {.math = math});
        for (int64_t tiles : {1, 2, 5}) {
          ASSERT_TRUE(testing::same_bits(run(*kernel, weight, x.view(), {.math = math, .tiles_a_call = tiles}), all))
              << kernel->name << " " << tiles << " tiles a call";
        }
        for (auto [first, count] : {std::pair<int64_t, int64_t>{0, 1}, {19, 1}, {3, 2}, {7, 8}}) {
          ASSERT_TRUE(testing::same_bits(run(*kernel, weight, x.view().row_range(first, count), {.math = math}),
                                         {all.begin() + first * 93, all.begin() + (first + count) * 93}))
              << kernel->name << " " << math_name(math) << " rows " << first << "+" << count;
        }
      }
    }
  }
}

// The largest integers that a block can hold: codes, factors and inputs all at their ends.
TEST(QuantKernels, do_not_overflow_at_the_ends_of_every_range) {
  for (DType type : kQuantTypes) {
    for (int fill : {0x00, 0xff, 0x80, 0x7f}) {
      QuantMatrix weight = random_quant_matrix(type, 16, 8, 18);
      for (size_t at = 0; at < weight.file.size(); ++at) {
        const auto within = static_cast<int>(at % static_cast<size_t>(block_shape(type).bytes));
        bool scale = type == DType::kMxfp4 && within == 0;
        for (int place : testing::half_places(type)) scale = scale || within == place || within == place + 1;
        if (!scale) weight.file[at] = static_cast<std::byte>(fill);
      }
      weight.pack();
      for (float sign : {1.0f, -1.0f}) {
        Matrix x(3, 256, std::vector<float>(3 * 256, sign * 5));
        for (const QuantKernelRow* kernel : testing::runnable_kernels(type)) {
          for (MathMode math : kMaths) {
            for (int64_t m : {1, 3}) {
              const View rows = x.view().row_range(0, m);
              const std::vector<float> y = run(*kernel, weight, rows, {.math = math});
              ASSERT_TRUE(testing::same_bits(y, run(reference_of(type), weight, rows, {.math = math})))
                  << kernel->name << " " << math_name(math) << " of " << fill;
              std::vector<float> w(256);
              read_quant_row(type, weight.tiles.data(), 8, 2, 0, 256, w.data());
              double exact = 0, size = 0;
              for (float each : w) exact += double{each} * sign * 5, size += std::abs(double{each}) * 5;
              // Half a step of an input, were it not at the end of its range; the rest is float's rounding, of the sum
              // and of a value and a minimum that may cancel.
              ASSERT_NEAR(y[2], exact, 1e-4 * size + 1e-4) << kernel->name << " " << math_name(math) << " of " << fill;
            }
          }
        }
      }
    }
  }
}

TEST(QuantKernels, extreme_inputs_keep_their_relative_size) {
  for (DType type : {DType::kQ4_0, DType::kQ6_K, DType::kQ8_0}) {
    const QuantMatrix weight = random_quant_matrix(type, 16, 8, 19);
    Matrix x = testing::random_matrix(1, 256, 20), large = x, small = x;
    for (float& value : large.data) value *= 0x1p80f;
    for (float& value : small.data) value *= 0x1p-80f;
    for (const QuantKernelRow* kernel : testing::runnable_kernels(type)) {
      std::vector<float> y = run(*kernel, weight, x.view()), up = run(*kernel, weight, large.view()),
                         down = run(*kernel, weight, small.view());
      for (size_t i = 0; i < 16; ++i) {
        EXPECT_EQ(up[i], y[i] * 0x1p80f) << kernel->name;
        EXPECT_EQ(down[i], y[i] * 0x1p-80f) << kernel->name;
      }
    }
  }
}

TEST(QuantKernels, a_nan_in_a_row_reaches_all_of_its_outputs_and_no_other_row) {
  for (DType type : kQuantTypes) {
    const QuantMatrix weight = random_quant_matrix(type, 20, 8, 21);
    Matrix x = testing::random_matrix(3, 256, 22);
    x.view().row(1)[200] = std::numeric_limits<float>::quiet_NaN();
    for (const QuantKernelRow* kernel : testing::runnable_kernels(type)) {
      const std::vector<float> y = run(*kernel, weight, x.view());
      for (size_t i = 0; i < 20; ++i) {
        EXPECT_FALSE(std::isnan(y[i])) << kernel->name;
        EXPECT_TRUE(std::isnan(y[23 + i])) << kernel->name;
        EXPECT_FALSE(std::isnan(y[46 + i])) << kernel->name;
      }
    }
  }
}

TEST(QuantKernels, zero_inputs_and_no_columns_give_zero_and_the_bias) {
  const std::vector<float> bias = testing::random_floats(20, 23);
  for (DType type : kQuantTypes) {
    for (int64_t blocks : {0, 8}) {
      const QuantMatrix weight = random_quant_matrix(type, 20, blocks, 24);
      Matrix x(6, blocks * 32);
      for (const QuantKernelRow* kernel : testing::runnable_kernels(type)) {
        const std::vector<float> y = run(*kernel, weight, x.view(), {.bias = &bias});
        for (size_t i = 0; i < 20; ++i) {
          EXPECT_EQ(y[i], bias[i]) << kernel->name;
          EXPECT_EQ(y[5 * 23 + i], bias[i]) << kernel->name;
        }
        const std::vector<float> first = run(*kernel, weight, x.view().row_range(0, 1), {.bias = &bias});
        for (size_t i = 0; i < 20; ++i) EXPECT_EQ(first[i], bias[i]) << kernel->name;
      }
    }
  }
}

// ---- the table

TEST(QuantTable, the_best_row_that_fits_is_chosen) {
  const auto name = [](Isa isa, CpuFeatures features, DType type) {
    const int index = select_quant_kernel(quant_kernels(), {isa, features, type});
    return index < 0 ? std::string("none") : std::string(quant_kernels()[static_cast<size_t>(index)].name);
  };
  EXPECT_EQ(name(Isa::kAmx, {.avx512_vnni = true}, DType::kQ4_K), "quant amx Q4_K");
  EXPECT_EQ(name(Isa::kAmx, {.avx512_vnni = true}, DType::kQ6_K), "quant avx512-vnni Q6_K");
  EXPECT_EQ(name(Isa::kAvx512, {.avx_vnni = true, .avx512_vnni = true}, DType::kQ4_K), "quant avx512-vnni Q4_K");
  EXPECT_EQ(name(Isa::kAvx512, {.avx_vnni = true}, DType::kQ4_K), "quant avx-vnni Q4_K");
  EXPECT_EQ(name(Isa::kAvx512, {}, DType::kQ4_K), "quant avx2 Q4_K");
  EXPECT_EQ(name(Isa::kAvx2, {.avx512_vnni = true}, DType::kMxfp4), "quant avx2 MXFP4");
  EXPECT_EQ(name(Isa::kReference, {}, DType::kQ8_0), "quant reference Q8_0");
  EXPECT_EQ(name(Isa::kAvx512, {}, DType::kBF16), "none");
}

TEST(QuantTable, has_a_row_of_every_file_for_every_type_in_one_order_class) {
  for (DType type : kQuantTypes) {
    int count = 0;
    for (const QuantKernelRow& row : quant_kernels()) {
      count += row.type == type ? 1 : 0;
      EXPECT_EQ(row.order, OrderClass::kIntegerBlocks) << row.name;
    }
    const bool tiles = quant_format(type).factors < 2;  // two sums a block would fill half a tile each
    EXPECT_EQ(count, tiles ? 5 : 4) << dtype_name(type);
  }
}

TEST(QuantTable, says_why_each_other_row_lost) {
  const std::string text = verdict_lines(judge_quant_kernels(quant_kernels(), {Isa::kAvx2, {}, DType::kQ5_1}));
  EXPECT_EQ(text,
            "quant amx Q5_1: needs amx, the best to use is avx2\n"
            "quant avx512-vnni Q5_1: needs avx512, the best to use is avx2\n"
            "quant avx-vnni Q5_1: needs AVX-VNNI, which this CPU lacks\n"
            "quant avx2 Q5_1: chosen\n"
            "quant reference Q5_1: quant avx2 Q5_1 is better\n");
}

}  // namespace
}  // namespace coprime
