// What the packed weights of each rank take, from the headers of a checkpoint: the planner's exact figures.
#pragma once

#include <vector>

#include "checkpoint/checkpoint.h"
#include "plan/plan.h"

namespace coprime {

// By rank, as a host device packs them; nothing is read but headers. Error(kModel) as load_shard.
std::vector<RankWeights> weigh_shards(const Checkpoint& checkpoint, const ShardPlan& plan);

// The same of a checkpoint that is not there yet, whose tensors are all of `type`, a plain one.
std::vector<RankWeights> weigh_shards(DType type, const ShardPlan& plan);

}  // namespace coprime
