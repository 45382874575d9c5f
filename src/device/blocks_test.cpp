// Weights in GGUF's blocks: linear() and embed() give the bits of the same numbers in F32, on every device, also where
// x has only a part of the columns that are held.
#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "device/reference/reference_device.h"
#include "device/testing.h"
#include "tensor/block_formats.h"

namespace coprime {
namespace {

using testing::Matrix;

constexpr DType kBlocks[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ2_K,
                             DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kMxfp4};

struct Pair {
  Weight blocks, floats;
};

// Random bytes, drawn again block by block until their numbers are finite and moderate.
Pair make_pair(Device& device, DType type, int64_t rows, int64_t columns) {
  const BlockShape shape = block_shape(type);
  std::mt19937 random(static_cast<unsigned>(rows + columns));
  std::vector<std::byte> bytes;
  std::vector<float> values;
  const auto elements = static_cast<size_t>(shape.elements);
  for (int64_t block = 0; block < rows * columns / shape.elements;) {
    std::vector<std::byte> candidate(static_cast<size_t>(shape.bytes));
    for (std::byte& byte : candidate) byte = static_cast<std::byte>(random());
    std::vector<float> numbers(elements);
    dequantize(type, candidate.data(), 1, numbers.data());
    if (!std::ranges::all_of(numbers, [](float value) { return std::abs(value) < 1e15f; })) continue;
    bytes.insert(bytes.end(), candidate.begin(), candidate.end());
    values.insert(values.end(), numbers.begin(), numbers.end());
    ++block;
  }
  Pair pair;
  pair.floats = testing::packed(device, DType::kF32, rows, columns, values);
  pair.blocks.name = "blocks";
  pair.blocks.rows = rows;
  pair.blocks.columns = columns;
  const auto sink = device.pack(pair.blocks, type, WeightUse::kLinear);
  const int64_t row_bytes = columns / shape.elements * shape.bytes, half = rows / 2;
  const std::span<const std::byte> all = bytes;
  if (half > 0) sink->rows(0, half, all.first(static_cast<size_t>(half * row_bytes)));
  if (rows > half) sink->rows(half, rows - half, all.subspan(static_cast<size_t>(half * row_bytes)));
  return pair;
}

std::vector<float> product(Device& device, const Weight& weight, Matrix& x) {
  Matrix y(x.rows, weight.rows, 3);
  std::fill(y.data.begin(), y.data.end(), 77.0f);
  const LinearTask task{&weight, y.view()};
  device.linear(x.view(), {&task, 1});
  return y.data;
}

// The reference, and each instruction set with one thread and more.
std::vector<std::unique_ptr<Device>> devices() {
  std::vector<std::unique_ptr<Device>> all;
  all.push_back(make_reference_device());
  for (Isa isa : testing::available_isas()) {
    all.push_back(testing::cpu_device(isa));
    all.push_back(testing::cpu_device(isa, 3));
  }
  return all;
}

TEST(Blocks, linear_has_the_bits_of_the_same_numbers_in_f32) {
  const auto reference = make_reference_device();
  for (const auto& device : devices()) {
    for (DType type : kBlocks) {
      for (auto [m, n, k] :
           {std::tuple{1, 40, 512}, {2, 16, 256}, {7, 130, 768}, {1, 1, 256}, {3, 0, 256}, {2, 5, 0}}) {
        Pair pair = make_pair(*device, type, n, k);
        if (n % 3 == 1) {
          const auto bias = testing::random_floats(static_cast<size_t>(n), 3);
          testing::add_bias(pair.blocks, bias);
          testing::add_bias(pair.floats, bias);
        }
        Matrix x = testing::random_matrix(m, k, 2);
        ASSERT_TRUE(testing::same_bits(product(*device, pair.blocks, x), product(*reference, pair.floats, x)))
            << device->description() << " " << dtype_name(type) << " " << m << " x " << n << " x " << k;
      }
    }
  }
}

TEST(Blocks, widths_that_256_does_not_divide_work_in_blocks_of_32) {
  for (const auto& device : devices()) {
    Pair pair = make_pair(*device, DType::kQ4_1, 33, 288 + 32);
    Matrix x = testing::random_matrix(5, 320, 2);
    EXPECT_TRUE(testing::same_bits(product(*device, pair.blocks, x), product(*device, pair.floats, x)));
  }
}

TEST(Blocks, tasks_of_blocks_and_of_floats_share_one_input) {
  for (const auto& device : devices()) {
    Pair a = make_pair(*device, DType::kQ8_0, 100, 512), b = make_pair(*device, DType::kQ6_K, 35, 512);
    Matrix x = testing::random_matrix(4, 512, 2), y1(4, 100), y2(4, 35), y3(4, 100);
    const LinearTask tasks[] = {{&a.blocks, y1.view()}, {&b.blocks, y2.view()}, {&a.floats, y3.view()}};
    device->linear(x.view(), tasks);
    EXPECT_TRUE(testing::same_bits(y1.data, y3.data));
    Matrix alone(4, 35);
    const LinearTask task{&b.floats, alone.view()};
    device->linear(x.view(), {&task, 1});
    EXPECT_TRUE(testing::same_bits(y2.data, alone.data));
  }
}

TEST(Blocks, embed_gives_the_rows_numbers) {
  for (const auto& device : devices()) {
    for (DType type : kBlocks) {
      Pair pair = make_pair(*device, type, 20, 512);
      const std::vector<int32_t> ids = {119, 100, 107, 99, 120};  // the last two are other ranks'
      Matrix blocks(5, 512), floats(5, 512);
      device->embed(pair.blocks, ids, 100, blocks.view());
      device->embed(pair.floats, ids, 100, floats.view());
      EXPECT_TRUE(testing::same_bits(blocks.data, floats.data)) << dtype_name(type);
    }
  }
}

TEST(Blocks, columns_that_x_does_not_have_meet_zeros) {
  for (const auto& device : devices()) {
    Pair pair = make_pair(*device, DType::kQ4_K, 50, 512);
    pair.blocks.inputs = {.columns = 100, .runs = {{60, 10, 40}, {0, 200, 56}}};  // 56..59 of x are dummies
    Matrix x = testing::random_matrix(3, 100, 2), wide(3, 512);
    for (int64_t r = 0; r < 3; ++r) {
      std::copy_n(x.view().row(r) + 60, 40, wide.view().row(r) + 10);
      std::copy_n(x.view().row(r), 56, wide.view().row(r) + 200);
    }
    EXPECT_TRUE(testing::same_bits(product(*device, pair.blocks, x), product(*device, pair.floats, wide)));
    Matrix other = testing::random_matrix(3, 512, 2);
    EXPECT_DEATH(product(*device, pair.blocks, other), "3 x 512 by 50 x 100");
  }
}

TEST(Blocks, a_width_of_broken_blocks_aborts) {
  Weight weight;
  weight.name = "w";
  weight.rows = 1, weight.columns = 48;
  EXPECT_DEATH(make_reference_device()->pack(weight, DType::kQ8_0, WeightUse::kLinear), "w: 1 x 48 of Q8_0");
}

}  // namespace
}  // namespace coprime
