// The padding of a drafter that shares the target's KV cache.
#pragma once

#include "geometry/shard_plan.h"

namespace coprime {

// The drafter's global counts when it is padded with a target. Its KV heads are the smallest multiple of `ranks` whose
// KV bytes per token equal the target's, `target_kv_elements` (padded KV heads times head size, copies counted):
// otherwise the cache's groups would have blocks of two sizes. Its GQA is kept. Error(kModel) where no such count
// exists.
Counts pad_drafter(const ModelShape& drafter, int64_t target_kv_elements, int ranks, int64_t mlp_unit);

}  // namespace coprime
