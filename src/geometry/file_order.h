// Where a file has the elements of an axis, if not in the model's own order: GGUF's converters move some.
#pragma once

#include "geometry/shard_plan.h"

namespace coprime {

// The place in the file of element `element` of an axis of the rule's tensor.
int64_t file_position(const ModelShape& shape, const Rule& rule, FileOrder order, int64_t element);

// The same map with its elements' places in the file.
AxisMap in_file_order(const ModelShape& shape, const Rule& rule, FileOrder order, const AxisMap& map);

}  // namespace coprime
