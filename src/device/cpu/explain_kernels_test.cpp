#include "device/cpu/explain_kernels.h"

#include <gtest/gtest.h>

namespace coprime {
namespace {

const KernelChoice& find(const std::vector<KernelChoice>& choices, std::string_view operation,
                         std::string_view format) {
  for (const KernelChoice& each : choices) {
    if (each.operation == operation && each.format == format) return each;
  }
  ADD_FAILURE() << "no " << operation << " of " << format;
  return choices.front();
}

std::string reason(const KernelChoice& choice, std::string_view name) {
  for (const KernelVerdict& each : choice.others) {
    if (each.name == name) return each.reason;
  }
  return "not there";
}

constexpr DType kWeights[] = {DType::kBF16, DType::kF32, DType::kQ4_K, DType::kQ6_K, DType::kFp8};
constexpr CpuKind kSapphireRapids = {Isa::kAmx, {.avx_vnni = true, .avx512_vnni = true}};
constexpr CpuKind kZen5 = {Isa::kAvx512, {.avx_vnni = true, .avx512_vnni = true, .avx512_bf16 = true}};

TEST(ExplainKernels, every_operation_has_a_row_and_each_other_one_a_reason) {
  for (const CpuKind& cpu : {kSapphireRapids, kZen5, CpuKind{Isa::kAvx2, {}}, CpuKind{}}) {
    for (MathMode math : {MathMode::kF32, MathMode::kSplit, MathMode::kFast}) {
      const auto choices = explain_kernels(cpu, {.math = math}, kWeights, DType::kF16);
      EXPECT_EQ(choices.size(), std::size(kWeights) + 3);
      for (const KernelChoice& each : choices) {
        EXPECT_NE(each.chosen, "") << each.operation;
        for (const KernelVerdict& other : each.others) EXPECT_NE(other.reason, "") << other.name;
      }
    }
  }
}

TEST(ExplainKernels, a_cpu_with_amx_takes_it_where_it_is_worth_it) {
  const auto choices = explain_kernels(kSapphireRapids, {}, kWeights, DType::kF16);
  EXPECT_EQ(find(choices, "linear", "BF16").chosen, "split amx BF16");
  EXPECT_EQ(reason(find(choices, "linear", "BF16"), "linear avx512 BF16"), "split amx BF16 is better");
  EXPECT_EQ(find(choices, "linear", "F32").chosen, "linear avx512 F32");
  EXPECT_EQ(find(choices, "linear", "Q4_K").chosen, "quant amx Q4_K");
  EXPECT_EQ(find(choices, "linear", "Q6_K").chosen, "quant avx512-vnni Q6_K");
  EXPECT_EQ(find(choices, "attention", "F16").chosen, "attention avx512 F16");
}

TEST(ExplainKernels, arithmetic_and_exact_mode_decide_too) {
  const auto bf16 = [](const CpuKind& cpu, const CpuOptions& options) {
    return explain_kernels(cpu, options, kWeights, DType::kF32).front();
  };
  EXPECT_EQ(bf16(kZen5, {.math = MathMode::kFast}).chosen, "split avx512-bf16 BF16");
  EXPECT_EQ(bf16(kZen5, {}).chosen, "linear avx512 BF16");
  EXPECT_EQ(reason(bf16(kZen5, {}), "split avx512-bf16 BF16"), "is for --math fast, not split");
  EXPECT_EQ(bf16(kSapphireRapids, {.math = MathMode::kF32}).chosen, "linear avx512 BF16");
  EXPECT_EQ(bf16(kSapphireRapids, {.exact = true}).chosen, "linear avx512 BF16");
  EXPECT_EQ(reason(bf16(kSapphireRapids, {.exact = true}), "split amx BF16"),
            "adds in an order of its own, not --exact");
  EXPECT_EQ(find(explain_kernels(kZen5, {.math = MathMode::kF32}, kWeights, DType::kF32), "linear", "Q4_K").chosen,
            "quant avx512-vnni Q4_K, widened to F32");
}

TEST(ExplainKernels, a_cpu_with_nothing_has_the_reference) {
  for (const KernelChoice& each : explain_kernels({}, {}, kWeights, DType::kF32)) {
    EXPECT_NE(each.chosen.find("reference"), std::string::npos) << each.operation << ": " << each.chosen;
  }
}

}  // namespace
}  // namespace coprime
