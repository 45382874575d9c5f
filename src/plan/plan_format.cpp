#include "plan/plan_format.h"

#include <array>

#include "base/error.h"

namespace coprime {
namespace {

// Bits: elements and scales of a block, over its elements (tensor/dtype.h for GGUF's).
constexpr auto kFormats = std::to_array<PlanFormat>({
    {"bf16", "BF16", 16, 16, 16, 1, true},
    {"f16", "F16", 16, 16, 16, 1, true},
    {"f32", "F32", 32, 32, 16, 1, true},
    {"mxfp4", "MXFP4", 4.25, 16, 64, 1, true},
    {"fp8-channel", "FP8 with a scale a row", 8, 16, 16, 1, true},
    {"fp8-block", "FP8 with scales of 128 x 128", 8.002, 16, 128, 128, true},
    {"int4-128", "4-bit integers in groups of 128", 4.25, 16, 128, 1, false},
    {"q4_0", "Q4_0", 4.5, 4.5, 32, 1, true},
    {"q4_1", "Q4_1", 5, 5, 32, 1, true},
    {"q5_0", "Q5_0", 5.5, 5.5, 32, 1, true},
    {"q5_1", "Q5_1", 6, 6, 32, 1, true},
    {"q8_0", "Q8_0", 8.5, 8.5, 32, 1, true},
    {"q2_k", "Q2_K", 2.625, 2.625, 32, 1, true},
    {"q3_k", "Q3_K", 3.4375, 3.4375, 32, 1, true},
    {"q4_k", "Q4_K", 4.5, 4.5, 32, 1, true},
    {"q5_k", "Q5_K", 5.5, 5.5, 32, 1, true},
    {"q6_k", "Q6_K", 6.5625, 6.5625, 32, 1, true},
});

}  // namespace

std::span<const PlanFormat> plan_formats() { return kFormats; }

const PlanFormat& plan_format(std::string_view name) {
  std::string names;
  for (const PlanFormat& format : kFormats) {
    if (format.name == name) return format;
    names += (names.empty() ? "" : ", ") + std::string(format.name);
  }
  fail(ErrorKind::kUsage, "{} is no format that coprime knows; expected one of {}", name, names);
}

}  // namespace coprime
