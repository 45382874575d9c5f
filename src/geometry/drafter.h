// A drafter (DFlash, DFlash2) that shares the target's KV cache: its shape, and its padding.
#pragma once

#include "geometry/shard_plan.h"

namespace coprime {

// The geometry of the drafter in `folder`: what its config.json says of layers, heads, widths and formats.
// Error(kModel) for another architecture, and a key that is missing or out of range.
ModelShape read_drafter_shape(const std::filesystem::path& folder);

// The drafter's global counts when it is padded with a target. Its KV heads are the smallest multiple of `ranks` whose
// KV bytes per token equal the target's, `target_kv_elements` (padded KV heads times head size, copies counted):
// otherwise the cache's groups would have blocks of two sizes. Its GQA is kept. Error(kModel) where no such count
// exists.
Counts pad_drafter(const ModelShape& drafter, int64_t target_kv_elements, int ranks, int64_t mlp_unit);

}  // namespace coprime
