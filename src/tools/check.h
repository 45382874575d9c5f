// A checkpoint's headers against a plan: which tensors are padded, and what is wrong. Owns the composition of model,
// multi-token-prediction head and drafter, and the report.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/header_check.h"

namespace coprime {

struct CheckOptions {
  std::filesystem::path model;
  std::filesystem::path drafter;  // empty: none
  PlanOptions plan;
  bool tensors = false;  // pad and verify one real tensor of each rule
};

struct CheckResult {
  ShardPlan plan;
  HeaderCheck model;
  std::optional<Counts> drafter_counts;  // padded
  std::optional<HeaderCheck> drafter;
  bool holds() const { return model.holds() && (!drafter || drafter->holds()); }
};

// Error(kModel) where a config or a header cannot be read at all; everything else is in the result.
CheckResult check_model(const CheckOptions& options);

// A table of the rules, and what follows; the same as one JSON object.
std::string check_text(const CheckResult& result);
std::string check_json(const CheckResult& result);

}  // namespace coprime
