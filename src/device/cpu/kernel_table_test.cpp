#include "device/cpu/kernel_table.h"

#include <gtest/gtest.h>

#include "device/cpu/kernels.h"

namespace coprime {
namespace {

TEST(KernelTable, the_best_row_within_the_limit_is_chosen) {
  const auto rows = linear_kernels();
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
      const int index = select_kernel(rows, {isa, type});
      ASSERT_GE(index, 0);
      EXPECT_EQ(rows[static_cast<size_t>(index)].isa, isa);
      EXPECT_EQ(rows[static_cast<size_t>(index)].type, type);
    }
    EXPECT_EQ(select_kernel(rows, {Isa::kReference, type}), -1);
  }
  EXPECT_EQ(select_kernel(rows, {Isa::kAvx512, DType::kI32}), -1);
}

TEST(KernelTable, says_why_each_other_row_lost) {
  const std::string text = verdict_lines(judge_kernels(linear_kernels(), {Isa::kAvx2, DType::kBF16}));
  EXPECT_NE(text.find("linear avx2 BF16: chosen\n"), std::string::npos) << text;
  EXPECT_NE(text.find("linear avx512 BF16: needs avx512, the best to use is avx2\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("F32"), std::string::npos) << text;
  const std::string best = verdict_lines(judge_kernels(linear_kernels(), {Isa::kAvx512, DType::kBF16}));
  EXPECT_NE(best.find("linear avx2 BF16: linear avx512 BF16 is better\n"), std::string::npos) << best;
}

// Ranks of different CPUs may meet: a type's kernels must not differ in the order of their additions.
TEST(KernelTable, kernels_of_one_operation_share_their_order_class) {
  for (const auto& row : linear_kernels()) EXPECT_EQ(row.order, OrderClass::kSequentialFma) << row.name;
  for (const auto& row : attention_kernels()) EXPECT_EQ(row.order, OrderClass::kLanes) << row.name;
}

TEST(BestIsa, never_exceeds_the_limit) {
  EXPECT_EQ(best_isa(Isa::kReference), Isa::kReference);
  EXPECT_LE(best_isa(Isa::kAvx2), Isa::kAvx2);
  EXPECT_LE(best_isa(Isa::kAvx2), best_isa(Isa::kAvx512));
}

TEST(MakeCpuDevice, falls_back_to_the_reference) {
  EXPECT_EQ(make_cpu_device({.isa = Isa::kReference})->description(), "cpu reference, 1 thread");
  if (best_isa(Isa::kAvx2) == Isa::kAvx2) {
    EXPECT_EQ(make_cpu_device({.isa = Isa::kAvx2, .threads = 2})->description(), "cpu avx2, 2 threads");
  }
}

}  // namespace
}  // namespace coprime
