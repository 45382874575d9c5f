// Quantised products over tiles, in software and with AVX2's vectors: the bits of the reference. (Where the CPU has
// AMX, quant_kernels_test.cpp runs the row itself.)
#include <gtest/gtest.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "device/quant/quant_testing.h"
#include "device/testing.h"
#include "device/testing/software_tiles.h"
#include "hwy/base.h"

#define COPRIME_AVX_VNNI 0
HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,bmi,bmi2")
namespace coprime {
namespace {

#include "device/quant/vectors256-inl.h"
//
#include "device/quant/quant-inl.h"
//
#include "device/quant/quant_tiles-inl.h"

struct TilesKernel {
  DType type;
  void (*multiply)(const QuantWork&);
};

template <DType kType>
constexpr TilesKernel kernel() {
  return {kType, multiply_many<testing::SoftwareTiles, kType>};
}

constexpr TilesKernel kKernels[] = {
    kernel<DType::kQ4_0>(), kernel<DType::kQ4_1>(), kernel<DType::kQ5_0>(), kernel<DType::kQ5_1>(),
    kernel<DType::kQ8_0>(), kernel<DType::kQ4_K>(), kernel<DType::kQ5_K>(), kernel<DType::kMxfp4>(),
};

}  // namespace
}  // namespace coprime
HWY_POP_ATTRIBUTES

namespace coprime {
namespace {

std::vector<float> run(void (*multiply)(const QuantWork&), ActivationForm form, MathMode math,
                       const testing::QuantMatrix& weight, View x, const std::vector<float>& bias, int64_t tiles) {
  const auto input = testing::rounded(quantise_reference, form, math, x);
  testing::Matrix y(x.rows, weight.rows, 3);  // rows apart: nothing may be written between them
  std::fill(y.data.begin(), y.data.end(), 77.0f);
  QuantWork work{weight.tiles.data(), bias.data(), weight.rows, 0, 0, input.blocks, y.view()};
  for (; work.last_tile < quant_tiles(weight.rows); work.first_tile = work.last_tile) {
    work.last_tile = std::min(quant_tiles(weight.rows), work.first_tile + tiles);
    multiply(work);
  }
  return y.data;
}

void expect_reference_bits(const TilesKernel& kernel, int64_t m, int64_t n, int64_t blocks, int64_t tiles) {
  const testing::QuantMatrix weight = testing::random_quant_matrix(kernel.type, n, blocks, 5);
  const std::vector<float> bias = testing::random_floats(static_cast<size_t>(n), 6);
  testing::Matrix x = testing::random_matrix(m, blocks * kQuantBlock, 7);
  const int reference = select_quant_kernel(quant_kernels(), {Isa::kReference, {}, kernel.type});
  const auto multiply = quant_kernels()[static_cast<size_t>(reference)].functions.multiply;
  for (MathMode math : {MathMode::kSplit, MathMode::kFast}) {
    const ActivationForm form = math == MathMode::kFast ? ActivationForm::kOneByte : ActivationForm::kTwoBytes;
    ASSERT_TRUE(testing::same_bits(run(kernel.multiply, form, math, weight, x.view(), bias, tiles),
                                   run(multiply, form, math, weight, x.view(), bias, 1 << 20)))
        << dtype_name(kernel.type) << " " << math_name(math) << ", " << m << " x " << n << " x " << blocks << " blocks";
  }
}

TEST(QuantTiles, have_the_references_bits_for_every_shape) {
  for (const TilesKernel& kernel : kKernels) {
    for (int64_t m : {1, 15, 16, 17, 40}) {
      for (int64_t n : {1, 16, 50}) expect_reference_bits(kernel, m, n, 8, 2);
    }
    expect_reference_bits(kernel, 20, 33, 0, 2);
  }
}

TEST(QuantTiles, have_the_references_bits_where_columns_and_rows_go_in_blocks) {
  for (const TilesKernel& kernel : kKernels) expect_reference_bits(kernel, 150, 20, 72, 1);
}

}  // namespace
}  // namespace coprime
