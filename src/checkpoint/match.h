// Which rule each tensor of a checkpoint falls under. Internal to checkpoint.
#pragma once

#include <vector>

#include "checkpoint/checkpoint.h"

namespace coprime {

struct Match {
  Checkpoint::Located at;
  const Rule* rule;
  int layer;
};

struct Matches {
  std::vector<Match> tensors;  // in the order of the files
  Tally tally;
};

// Every tensor that the plan's rules predict, once, of a type and a shape that can be loaded. Error(kModel) otherwise.
Matches match_tensors(const Checkpoint& checkpoint, const ShardPlan& plan);

}  // namespace coprime
