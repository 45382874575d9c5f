// What a rank holds of a matrix that is cut by columns, where its format has blocks: every block that it owns a part
// of. A block that straddles two shares is held by both; the rest of it meets zeros (tensor/weight.h).
#pragma once

#include <optional>

#include "geometry/shard_plan.h"
#include "tensor/weight.h"

namespace coprime {

struct HeldColumns {
  AxisMap held;                    // whole blocks: where they stand in the file, and behind one another in memory
  std::optional<InputMap> inputs;  // where the owned columns stand among the held ones; none: they are the same
};

// `owned`: places in the file of the columns that a rank owns. Columns that are whole blocks already stay in their
// order.
HeldColumns hold_whole_blocks(const AxisMap& owned, int64_t block);

}  // namespace coprime
