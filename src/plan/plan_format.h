// Formats of weights as the planner counts them: bits of an element with its share of the scales, and the unit in which
// a rank's share of an MLP's width is cut.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace coprime {

struct PlanFormat {
  std::string_view name;   // as --format names it
  std::string_view title;  // as a person does
  double bits = 16;        // of an element of a projection
  double other_bits = 16;  // of embedding, head, and what is no projection
  int64_t mlp_unit = 16;   // DESIGN: what the kernels and the scales of a rank's share need
  int64_t block = 1;       // of rows and columns that share a scale across heads
  bool runs = true;        // coprime's kernels compute with it
};

std::span<const PlanFormat> plan_formats();
// Error(kUsage) naming all of them.
const PlanFormat& plan_format(std::string_view name);

}  // namespace coprime
