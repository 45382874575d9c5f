// Products with FP8 weights: equal in every bit to the reference on every instruction set, which is close to the real
// product; packed tiles hold exactly the file's numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "device/quant/fp8_kernels.h"
#include "device/quant/quant_layout.h"
#include "device/testing.h"
#include "tensor/block_formats.h"

namespace coprime {
namespace {

using testing::Matrix;

struct Fp8Matrix {
  int64_t rows, blocks;
  std::vector<std::byte> file;  // rows of blocks of 132 bytes
  Buffer tiles;

  std::vector<float> row(int64_t r) const {
    std::vector<float> out(static_cast<size_t>(blocks * kFp8Columns));
    dequantize(DType::kFp8, file.data() + r * blocks * 132, blocks, out.data());
    return out;
  }
};

// All codes but NaN, equally likely: an eighth of a sixteenth of them are subnormal.
Fp8Matrix random_fp8(int64_t rows, int64_t blocks, uint32_t seed, float size = 0.01f) {
  Fp8Matrix made{rows, blocks, std::vector<std::byte>(static_cast<size_t>(rows * blocks * 132)), {}};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, size);
  for (std::byte* block = made.file.data(); block != made.file.data() + made.file.size(); block += 132) {
    const float scale = normal(random);
    std::memcpy(block, &scale, 4);
    for (int i = 4; i < 132; ++i) {
      do block[i] = static_cast<std::byte>(random());
      while ((block[i] & std::byte{0x7f}) == std::byte{0x7f});
    }
  }
  made.tiles = Buffer(static_cast<size_t>(quant_tiles(rows) * quant_tile_bytes(DType::kFp8, blocks * 4)));
  for (int64_t r = 0; r < rows; ++r) {
    pack_quant_row(
        DType::kFp8,
        std::span(made.file).subspan(static_cast<size_t>(r * blocks * 132), static_cast<size_t>(blocks * 132)), r,
        made.tiles.data());
  }
  return made;
}

std::vector<const KernelRow<const Fp8Functions*>*> runnable() {
  std::vector<const KernelRow<const Fp8Functions*>*> rows;
  for (const auto& row : fp8_kernels()) {
    if (row.isa <= best_isa(Isa::kAvx512)) rows.push_back(&row);
  }
  return rows;
}

std::vector<float> run(LinearFn kernel, const Fp8Matrix& weight, View x, const float* bias = nullptr,
                       int64_t tiles_a_call = 1 << 20) {
  Matrix y(x.rows, weight.rows, 3);  // rows apart: nothing may be written between them
  std::fill(y.data.begin(), y.data.end(), 77.0f);
  LinearWork work{weight.tiles.data(), bias, weight.rows, 0, 0, x, y.view()};
  for (; work.last_tile < quant_tiles(weight.rows); work.first_tile = work.last_tile) {
    work.last_tile = std::min(quant_tiles(weight.rows), work.first_tile + tiles_a_call);
    kernel(work);
  }
  return y.data;
}

TEST(Fp8, tiles_hold_the_files_numbers) {
  for (int64_t rows : {1, 16, 37}) {
    const Fp8Matrix weight = random_fp8(rows, 3, 5);
    for (int64_t r = 0; r < rows; ++r) {
      std::vector<float> found(3 * 128);
      read_quant_row(DType::kFp8, weight.tiles.data(), 12, r, 0, 3 * 128, found.data());
      std::vector<float> expected = weight.row(r);
      for (float& value : expected) value += 0.0f;
      ASSERT_TRUE(testing::same_bits(found, expected)) << "row " << r;
    }
  }
}

TEST(Fp8, every_code_is_widened_to_its_value_by_every_kernel) {
  Fp8Matrix weight = random_fp8(16, 2, 6);
  for (int code = 0; code < 256; ++code)
    weight.file[static_cast<size_t>(code < 128 ? 4 + code : 136 + code - 128)] =
        static_cast<std::byte>((code & 0x7f) == 0x7f ? 0 : code);
  pack_fp8_row(std::span(weight.file).first(264), 0, weight.tiles.data());
  for (const auto* kernel : runnable()) {
    Buffer out(256 * 16 * sizeof(float));
    kernel->fn->widen({weight.tiles.data(), 0, 256, out.as<float>()});
    for (int64_t k = 0; k < 256; ++k) {
      for (int64_t r = 0; r < 16; ++r) {
        ASSERT_EQ(out.as<float>()[k * 16 + r], weight.row(r)[static_cast<size_t>(k)]) << kernel->name;
      }
    }
    kernel->fn->widen({weight.tiles.data(), 100, 57, out.as<float>()});
    for (int64_t k = 0; k < 57; ++k) ASSERT_EQ(out.as<float>()[k * 16], weight.row(0)[static_cast<size_t>(100 + k)]);
  }
}

// Sums of 128 products and of blocks: the error of so many roundings, no more.
TEST(Fp8, the_reference_is_the_real_product_within_floats_rounding) {
  for (float size : {1e-20f, 0.01f, 1e20f}) {
    const Fp8Matrix weight = random_fp8(33, 5, 7, size);
    Matrix x = testing::random_matrix(2, 5 * 128, 8);
    const std::vector<float> y = run(fp8_reference().multiply, weight, x.view());
    for (int64_t m = 0; m < 2; ++m) {
      for (int64_t n = 0; n < 33; ++n) {
        const std::vector<float> w = weight.row(n);
        double exact = 0, magnitude = 0;
        for (int64_t k = 0; k < 5 * 128; ++k) {
          const double product = double{w[static_cast<size_t>(k)]} * x.view().row(m)[k];
          exact += product, magnitude += std::abs(product);
        }
        ASSERT_NEAR(y[static_cast<size_t>(m * 36 + n)], exact, 134 * 0x1p-24 * magnitude) << size;
      }
    }
  }
}

TEST(Fp8, every_kernel_has_the_references_bits_for_every_shape) {
  for (const auto* kernel : runnable()) {
    for (int64_t n : {1, 16, 33, 90}) {
      for (int64_t blocks : {0, 1, 3}) {
        const Fp8Matrix weight = random_fp8(n, blocks, static_cast<uint32_t>(n));
        const std::vector<float> bias = testing::random_floats(static_cast<size_t>(n), 9);
        for (int64_t m : {0, 1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 25, 40}) {
          Matrix x = testing::random_matrix(m, blocks * 128, 10);
          const float* added = n % 2 == 0 ? bias.data() : nullptr;
          ASSERT_TRUE(testing::same_bits(run(kernel->fn->multiply, weight, x.view(), added),
                                         run(fp8_reference().multiply, weight, x.view(), added)))
              << kernel->name << " " << m << " x " << n << " x " << 128 * blocks;
        }
      }
    }
  }
}

TEST(Fp8, a_row_is_alone_whatever_the_number_of_rows_and_the_split) {
  const Fp8Matrix weight = random_fp8(90, 4, 14);
  Matrix x = testing::random_matrix(20, 4 * 128, 15);
  for (const auto* kernel : runnable()) {
    const std::vector<float> all = run(kernel->fn->multiply, weight, x.view());
    for (int64_t tiles : {1, 2, 5}) {
      ASSERT_TRUE(testing::same_bits(run(kernel->fn->multiply, weight, x.view(), nullptr, tiles), all)) << tiles;
    }
    for (int64_t row : {0, 7, 19}) {
      const std::vector<float> alone = run(kernel->fn->multiply, weight, x.view().row_range(row, 1));
      ASSERT_TRUE(std::equal(alone.begin(), alone.begin() + 90, all.begin() + row * 93)) << row;
    }
  }
}

}  // namespace
}  // namespace coprime
