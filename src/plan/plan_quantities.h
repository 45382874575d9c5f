// The quantities that a plan divides, as rows that text, JSON and picture share. Internal to plan.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace coprime {

struct Quantity {
  std::string_view key, title;  // "kv_heads", "KV heads"
  int64_t stock = 0, padded = 0;
  std::vector<int64_t> real, held;  // by rank; held: with dummies
  std::string reason;
};

std::vector<Quantity> plan_quantities(const Plan& plan);

}  // namespace coprime
