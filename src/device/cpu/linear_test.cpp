// linear() adds in one order: its bits are those of the reference on every target, for every shape, type and thread
// count.
#include <gtest/gtest.h>

#include "device/reference/reference_device.h"
#include "device/testing.h"

namespace coprime {
namespace {

using testing::Matrix;

constexpr DType kTypes[] = {DType::kBF16, DType::kF16, DType::kF32};

struct Case {
  Weight weight;
  Matrix x;
};

Case make_case(Device& device, DType type, int64_t m, int64_t n, int64_t k, bool bias) {
  Case made{testing::packed(device, type, n, k, testing::random_floats(static_cast<size_t>(n * k), 1, 0.3f, type)),
            testing::random_matrix(m, k, 2)};
  if (bias) testing::add_bias(made.weight, testing::random_floats(static_cast<size_t>(n), 3));
  return made;
}

std::vector<float> run(Device& device, Case& c) {
  Matrix y(c.x.rows, c.weight.rows, 3);  // rows apart: nothing may be written between them
  std::fill(y.data.begin(), y.data.end(), 77.0f);
  const LinearTask task{&c.weight, y.view()};
  device.linear(c.x.view(), {&task, 1});
  return y.data;
}

TEST(Linear, has_the_reference_bits_for_every_shape_and_type) {
  const auto reference = make_reference_device();
  for (Isa isa : testing::available_isas()) {
    const auto device = testing::cpu_device(isa);
    for (DType type : kTypes) {
      for (int64_t m : {0, 1, 2, 3, 4, 5, 6, 17, 64}) {
        for (int64_t n : {0, 1, 15, 16, 17, 33, 130}) {
          for (int64_t k : {0, 1, 2, 3, 31, 96}) {
            Case c = make_case(*device, type, m, n, k, (n + k) % 2 == 1);
            ASSERT_TRUE(testing::same_bits(run(*device, c), run(*reference, c)))
                << isa_name(isa) << " " << dtype_name(type) << " " << m << " x " << n << " x " << k;
          }
        }
      }
    }
  }
}

TEST(Linear, has_the_reference_bits_where_columns_go_in_blocks_and_rows_in_panels) {
  const auto reference = make_reference_device();
  for (Isa isa : testing::available_isas()) {
    for (DType type : kTypes) {
      for (auto [m, n, k] : {std::tuple{1, 1000, 768}, {17, 40, 1543}, {197, 33, 513}}) {
        for (int threads : {1, 2, 3}) {
          const auto device = testing::cpu_device(isa, threads);
          Case c = make_case(*device, type, m, n, k, true);
          ASSERT_TRUE(testing::same_bits(run(*device, c), run(*reference, c)))
              << isa_name(isa) << " " << dtype_name(type) << " " << m << " x " << n << " x " << k << ", " << threads;
        }
      }
    }
  }
}

TEST(Linear, a_row_is_alone_whatever_the_number_of_rows) {
  for (Isa isa : testing::available_isas()) {
    const auto device = testing::cpu_device(isa);
    Case c = make_case(*device, DType::kBF16, 64, 150, 700, false);
    Matrix all(64, 150), one(1, 150);
    const LinearTask task{&c.weight, all.view()};
    device->linear(c.x.view(), {&task, 1});
    for (int64_t r = 0; r < 64; ++r) {
      const LinearTask single{&c.weight, one.view()};
      device->linear(c.x.view().row_range(r, 1), {&single, 1});
      const float* row = all.view().row(r);
      ASSERT_TRUE(testing::same_bits(one.data, {row, row + 150})) << r;
    }
  }
}

// Inputs in parts, where the CPU has kernels for them: each call splits its own x, and rows stay alone.
TEST(Linear, in_two_parts_stays_close_to_the_reference_whatever_the_threads) {
  const auto reference = make_reference_device();
  for (Isa isa : testing::available_isas()) {
    std::vector<float> first;
    for (int threads : {1, 3}) {
      const auto device = testing::cpu_device(isa, threads, MathMode::kSplit);
      for (int64_t m : {1, 30, 2}) {
        Case c = make_case(*device, DType::kBF16, m, 150, 700, true);
        const std::vector<float> y = run(*device, c);
        ASSERT_TRUE(testing::all_near(y, run(*reference, c), 1e-3)) << isa_name(isa) << " " << m << " rows";
        if (m != 30) continue;
        if (first.empty()) first = y;
        EXPECT_TRUE(testing::same_bits(y, first)) << isa_name(isa) << ", " << threads << " threads";
      }
    }
  }
}

TEST(Linear, exact_mode_keeps_the_reference_bits_whatever_the_arithmetic) {
  const auto reference = make_reference_device();
  for (Isa isa : testing::available_isas()) {
    const auto device = make_cpu_device({.isa = isa, .math = MathMode::kSplit, .exact = true});
    Case c = make_case(*device, DType::kBF16, 20, 150, 700, true);
    EXPECT_TRUE(testing::same_bits(run(*device, c), run(*reference, c))) << isa_name(isa);
    EXPECT_EQ(device->linear_order(), OrderClass::kSequentialFma) << isa_name(isa);
  }
}

TEST(Linear, tasks_that_share_their_input_are_split_over_any_number_of_threads) {
  const auto reference = make_reference_device();
  for (Isa isa : testing::available_isas()) {
    for (int threads : {1, 2, 3, 7}) {
      const auto device = testing::cpu_device(isa, threads);
      Matrix x = testing::random_matrix(3, 768, 5);
      std::vector<Weight> weights;
      std::vector<Matrix> fast, slow;
      for (int64_t rows : {1, 512, 130, 0, 16}) {
        const DType type = kTypes[static_cast<size_t>(rows) % 3];
        weights.push_back(testing::packed(*device, type, rows, 768,
                                          testing::random_floats(static_cast<size_t>(rows * 768), 6, 1.0f, type)));
        fast.emplace_back(3, rows);
        slow.emplace_back(3, rows);
      }
      std::vector<LinearTask> fast_tasks, slow_tasks;
      for (size_t i = 0; i < weights.size(); ++i) {
        fast_tasks.push_back({&weights[i], fast[i].view()});
        slow_tasks.push_back({&weights[i], slow[i].view()});
      }
      device->linear(x.view(), fast_tasks);
      reference->linear(x.view(), slow_tasks);
      for (size_t i = 0; i < weights.size(); ++i) EXPECT_TRUE(testing::same_bits(fast[i].data, slow[i].data)) << i;
    }
  }
}

TEST(Linear, a_misshapen_task_aborts_with_its_shapes) {
  const auto device = testing::cpu_device(Isa::kAvx512);
  Case c = make_case(*device, DType::kF32, 2, 4, 8, false);
  Matrix y(2, 5);
  const LinearTask task{&c.weight, y.view()};
  EXPECT_DEATH(device->linear(c.x.view(), {&task, 1}), "2 x 8 by 4 x 8 into 2 x 5");
}

TEST(Linear, negative_zero_and_huge_values_follow_the_chain) {
  const auto reference = make_reference_device();
  for (Isa isa : testing::available_isas()) {
    const auto device = testing::cpu_device(isa);
    Case c = make_case(*device, DType::kF32, 1, 20, 3, false);
    c.x.data = {-0.0f, 1e30f, -0.0f};
    ASSERT_TRUE(testing::same_bits(run(*device, c), run(*reference, c)));
  }
}

}  // namespace
}  // namespace coprime
