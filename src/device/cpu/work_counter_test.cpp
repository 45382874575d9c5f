// A peer's patience is shorter than a long operation: the counter must move inside it.
#include "device/work_counter.h"

#include <gtest/gtest.h>

#include "device/cpu/cpu_device.h"
#include "device/testing.h"

namespace coprime {
namespace {

using testing::Matrix;

class CountedWork : public ::testing::TestWithParam<std::tuple<Isa, int>> {  // threads
 protected:
  std::atomic<uint64_t> count_{0};
  std::unique_ptr<Device> device_ =
      make_cpu_device({.isa = std::get<0>(GetParam()), .threads = std::get<1>(GetParam()), .progress = &count_});
};

TEST_P(CountedWork, a_product_of_many_elements_counts_its_parts) {
  const Weight weight = testing::packed(*device_, DType::kF32, 1024, 512, std::vector<float>(1024 * 512, 1.0f));
  Matrix x(600, 512, std::vector<float>(600 * 512, 1.0f)), y(600, 1024);
  const LinearTask task{&weight, y.view()};
  device_->linear(x.view(), {&task, 1});
  EXPECT_GE(count_.load(), 4u);  // 3e8 products
  EXPECT_EQ(y.data, std::vector<float>(600 * 1024, 512.0f));
}

TEST_P(CountedWork, rows_of_one_operation_are_counted_on_the_way) {
  Matrix x(1000, 256), y(1000, 256);
  const std::vector<float> weight(256, 1.0f);
  device_->rms_norm(x.view(), weight.data(), 1e-6f, y.view());
  EXPECT_GE(count_.load(), std::get<0>(GetParam()) == Isa::kReference ? 1u : 10u);
}

TEST_P(CountedWork, an_operation_of_few_elements_counts_once_or_twice) {
  const Weight weight = testing::packed(*device_, DType::kF32, 16, 16, std::vector<float>(256, 1.0f));
  Matrix x(1, 16), y(1, 16);
  const LinearTask task{&weight, y.view()};
  device_->linear(x.view(), {&task, 1});
  EXPECT_GE(count_.load(), 1u);
  EXPECT_LE(count_.load(), 17u);
}

INSTANTIATE_TEST_SUITE_P(All, CountedWork,
                         ::testing::Combine(::testing::Values(Isa::kReference, Isa::kAvx2), ::testing::Values(1, 2)),
                         [](const auto& tested) {
                           return fmt::format("{}_{}", isa_name(std::get<0>(tested.param)), std::get<1>(tested.param));
                         });

}  // namespace
}  // namespace coprime
