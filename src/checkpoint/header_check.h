// A checkpoint's headers against a plan, to the end: all that is wrong is collected, not the first alone. The tensors
// of the multi-token-prediction head and of a drafter are checked, too, though no rank loads them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace coprime {

// What became of one rule, in one format.
struct CheckedRule {
  std::string part;    // "", "mtp" or "drafter"
  std::string name;    // "q_proj"
  std::string format;  // "BF16", "MXFP4 (Quark)"
  Operation op = Operation::kReplicate;
  int found = 0, expected = 0;              // matrices and vectors; `expected` over all formats of the rule
  int tensors = 0, padded = 0;              // of the file, scales counted; of them those whose shape grows
  int64_t stock_size = 0, padded_size = 0;  // of the axis that is cut
  bool at_run_time = false;                 // the vocabulary: padded where it is computed, not in the tensor
  bool verified = false;                    // one tensor's padding, byte for byte
};

struct HeaderCheck {
  std::vector<CheckedRule> rules;
  int tensors = 0, padded = 0;         // of the file
  int denied = 0;                      // of the file: that must never be padded, and are not
  std::map<std::string, int> unused;   // by family: known, and left as they are
  std::vector<std::string> unmatched;  // tensors that no rule and no family explains
  std::vector<std::string> problems;   // with those, and rules whose count is wrong
  bool holds() const { return problems.empty(); }
};

// The model's own tensors, and those of its multi-token-prediction head where there are any. `tensors`: one real tensor
// of each rule that is cut is padded as for one rank that holds everything, and verified byte for byte.
HeaderCheck check_headers(const Checkpoint& checkpoint, const ShardPlan& plan, bool tensors);

// Those of a DFlash drafter, with counts as pad_drafter() gives them. `plan` is the drafter's own.
HeaderCheck check_drafter_headers(const Checkpoint& checkpoint, const ShardPlan& plan, const Counts& padded);

}  // namespace coprime
