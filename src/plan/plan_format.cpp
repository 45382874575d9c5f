#include "plan/plan_format.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/error.h"
#include "plan/load.h"

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

std::string lower(std::string_view name) {
  std::string result(name);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

struct Mixture {
  std::string_view name, title;
  double bits, more;  // of an element of its two types
};
constexpr Mixture kMixtures[] = {{"q4_k_m", "Q4_K_M", 4.5, 6.5625}, {"q5_k_m", "Q5_K_M", 5.5, 6.5625}};

// Of how many layers the value and down projections have the type of more bits: llama.cpp's use_more_bits().
int64_t layers_with_more(int64_t layers) {
  int64_t count = 0;
  for (int64_t i = 0; i < layers; ++i) count += i < layers / 8 || i >= 7 * layers / 8 || (i - layers / 8) % 3 == 2;
  return count;
}

PlanFormat mixed(const Mixture& mixture, const ModelNumbers& model) {
  const Parameters all = parameters_of(model, whole_load(model));
  const double projections = all.attention + all.linear + all.mlp + all.experts;
  const auto real = [](int64_t count) { return static_cast<double>(count); };
  const double values =
      model.latent() ? 0 : real(model.attention_layers * model.kv_heads * model.head_dim * model.hidden);
  const double down = (all.mlp + all.experts) / real(model.mlp_matrices);
  const double share = real(layers_with_more(model.layers)) / real(model.layers) * (values + down) / projections;
  return {.name = mixture.name,
          .title = mixture.title,
          .bits = mixture.bits + share * (mixture.more - mixture.bits),
          .other_bits = mixture.more,
          .mlp_unit = 32,
          .table_bits = mixture.bits};
}

}  // namespace

std::span<const PlanFormat> plan_formats() { return kFormats; }

const PlanFormat& plan_format(std::string_view name) {
  std::string names;
  for (const PlanFormat& format : kFormats) {
    if (format.name == lower(name)) return format;
    names += std::string(format.name) + ", ";
  }
  for (const Mixture& mixture : kMixtures) names += std::string(mixture.name) + ", ";
  names.resize(names.size() - 2);
  fail(ErrorKind::kUsage, "{} is no format that coprime knows; expected one of {}", name, names);
}

PlanFormat plan_format(std::string_view name, const ModelNumbers& model) {
  for (const Mixture& mixture : kMixtures)
    if (mixture.name == lower(name)) return mixed(mixture, model);
  return plan_format(name);
}

}  // namespace coprime
