// The reference against double arithmetic written out here, and against the orders that device.h states.
#include "device/reference/reference_device.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "base/number_formats.h"
#include "device/testing.h"

namespace coprime {
namespace {

TEST(Packing, every_element_is_where_the_layout_says) {
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int64_t rows : {1, 15, 16, 17, 33}) {
      for (int64_t columns : {1, 2, 7, 300}) {
        const std::vector<float> values = testing::random_floats(static_cast<size_t>(rows * columns), 1, 1.0f, type);
        const auto device = make_reference_device();
        const Weight weight = testing::packed(*device, type, rows, columns, values);
        const Component& component = weight.components.at(0);
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < columns; ++c) {
            const float expected = values[static_cast<size_t>(r * columns + c)];
            ASSERT_EQ(packed_value(component, columns, r, c), expected);
            const int64_t tile = r / 16, lane = r % 16;  // tensor/weight.h
            const auto* bytes = component.bytes.data();
            if (type == DType::kBF16) {
              const int64_t at = ((tile * ((columns + 1) / 2) + c / 2) * 16 + lane) * 2 + c % 2;
              ASSERT_EQ(bf16_to_f32(reinterpret_cast<const uint16_t*>(bytes)[at]), expected);
            } else if (type == DType::kF16) {
              ASSERT_EQ(f16_to_f32(reinterpret_cast<const uint16_t*>(bytes)[(tile * columns + c) * 16 + lane]),
                        expected);
            } else {
              ASSERT_EQ(reinterpret_cast<const float*>(bytes)[(tile * columns + c) * 16 + lane], expected);
            }
          }
        }
      }
    }
  }
}

TEST(Packing, a_vector_is_widened_and_offset) {
  const auto device = make_reference_device();
  const Weight weight = testing::packed(*device, DType::kBF16, 1, 3, {0.5f, -1.0f, 2.0f}, WeightUse::kVector, 1.0f);
  EXPECT_EQ(weight.vector()[0], 1.5f);
  EXPECT_EQ(weight.vector()[1], 0.0f);
  EXPECT_EQ(weight.vector()[2], 3.0f);
}

TEST(Packing, another_element_type_is_refused_by_name) {
  Weight weight;
  weight.name = "w";
  weight.rows = weight.columns = 1;
  try {
    make_reference_device()->pack(weight, DType::kI64, WeightUse::kLinear);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kModel);
    EXPECT_NE(std::string(error.what()).find("I64"), std::string::npos);
  }
}

TEST(Packing, rows_out_of_order_abort) {
  Weight weight;
  weight.rows = 2, weight.columns = 1;
  const auto sink = make_reference_device()->pack(weight, DType::kF32, WeightUse::kLinear);
  const float value = 1;
  EXPECT_DEATH(sink->rows(1, 1, std::as_bytes(std::span(&value, 1))), "rows 1");
}

TEST(ReferenceDevice, linear_is_the_product) {
  const auto device = make_reference_device();
  const std::vector<float> w = testing::random_floats(20 * 31, 2, 1.0f, DType::kBF16),
                           x = testing::random_floats(3 * 31, 3);
  const std::vector<float> bias = testing::random_floats(20, 4);
  Weight weight = testing::packed(*device, DType::kBF16, 20, 31, w);
  testing::add_bias(weight, bias);
  testing::Matrix in(3, 31, x), out(3, 20);
  const LinearTask task{&weight, out.view()};
  device->linear(in.view(), {&task, 1});
  for (int64_t m = 0; m < 3; ++m) {
    for (int64_t n = 0; n < 20; ++n) {
      double sum = bias[static_cast<size_t>(n)];
      for (int64_t k = 0; k < 31; ++k)
        sum += double{w[static_cast<size_t>(n * 31 + k)]} * x[static_cast<size_t>(m * 31 + k)];
      EXPECT_NEAR(out.view().row(m)[n], sum, 1e-5);
    }
  }
}

TEST(ReferenceDevice, a_norm_has_unit_mean_square) {
  const auto device = make_reference_device();
  testing::Matrix x(1, 96, testing::random_floats(96, 5)), y(1, 96);
  const std::vector<float> ones(96, 1.0f);
  device->rms_norm(x.view(), ones.data(), 0, y.view());
  double squares = 0;
  for (int64_t c = 0; c < 96; ++c) squares += double{y.view().row(0)[c]} * y.view().row(0)[c];
  EXPECT_NEAR(squares / 96, 1, 1e-6);
}

TEST(ReferenceDevice, embed_gives_zero_for_another_ranks_ids) {
  const auto device = make_reference_device();
  const Weight table = testing::packed(*device, DType::kF32, 2, 2, {1, 2, 3, -0.0f});
  testing::Matrix out(4, 2, std::vector<float>(8, 9.0f));
  const std::vector<int32_t> ids = {10, 11, 9, 12};
  device->embed(table, ids, 10, out.view());
  EXPECT_EQ(out.data, (std::vector<float>{1, 2, 3, 0, 0, 0, 0, 0}));
  EXPECT_FALSE(std::signbit(out.data[3]));
}

TEST(ReferenceDevice, counts_its_operations) {
  std::atomic<uint64_t> progress = 0;
  const auto device = make_reference_device(MathMode::kF32, &progress);
  testing::Matrix x(1, 4), y(1, 4);
  device->swiglu(x.view(), y.view());
  EXPECT_EQ(progress.load(), 1u);
}

}  // namespace
}  // namespace coprime
