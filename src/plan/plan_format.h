// Formats of weights as the planner counts them: bits of an element with its share of the scales, and the unit in which
// a rank's share of an MLP's width is cut.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "plan/model_numbers.h"

namespace coprime {

struct PlanFormat {
  std::string_view name;   // as --format names it
  std::string_view title;  // as a person does
  double bits = 16;        // of an element of a projection
  double other_bits = 16;  // of embedding, head, and what is no projection
  int64_t mlp_unit = 16;   // DESIGN: what the kernels and the scales of a rank's share need
  int64_t block = 1;       // of rows and columns that share a scale across heads
  bool runs = true;        // coprime's kernels compute with it
  double table_bits = 0;   // of a mixture's embedding that is no head; 0: no mixture
};

std::span<const PlanFormat> plan_formats();
// In whatever case the name is written. Error(kUsage) naming all of them, and the mixtures.
const PlanFormat& plan_format(std::string_view name);

// Also of a mixture that llama.cpp makes of a model (q4_k_m, q5_k_m), by its rule for dense models: value and down
// projections of half of the layers and the head in Q6_K, all else in one type.
PlanFormat plan_format(std::string_view name, const ModelNumbers& model);

}  // namespace coprime
