// The rules of a model: which tensors it has, how each is cut, and how many of each its layer list predicts. Internal
// to geometry and checkpoint.
#pragma once

#include <vector>

#include "geometry/shard_plan.h"

namespace coprime {

// `exact`: the projections back to the hidden size are cut by rows.
std::vector<Rule> make_rules(const ModelShape& shape, bool exact);

// A tensor of the multi-token-prediction head, whose layers are decoder layers with full attention.
struct MtpTensor {
  std::string name;
  Rule rule;
  int layer;  // counted on from the decoder's
};

// Those that a checkpoint with such a head has.
std::vector<MtpTensor> mtp_tensors(const ShardPlan& plan);

}  // namespace coprime
