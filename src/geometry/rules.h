// The rules of a model: which tensors it has, how each is cut, and how many of each its layer list predicts. Internal
// to geometry.
#pragma once

#include <vector>

#include "geometry/shard_plan.h"

namespace coprime {

// `exact`: the projections back to the hidden size are cut by rows.
std::vector<Rule> make_rules(const ModelShape& shape, bool exact);

}  // namespace coprime
