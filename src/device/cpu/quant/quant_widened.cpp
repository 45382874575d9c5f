#include "device/cpu/quant/quant_widened.h"

#include <algorithm>

#include "base/check.h"
#include "device/cpu/quant/quant_layout.h"

namespace coprime {

void multiply_widened(void (*widen)(const WidenWork&), LinearFn multiply, const WidenedWork& work) {
  COPRIME_CHECK(work.lead + work.x.columns <= work.blocks * kQuantBlock, "{} columns after {} in {} blocks",
                work.x.columns, work.lead, work.blocks);
  const int64_t tile_bytes = quant_tile_bytes(work.type, work.blocks);
  LinearWork part;
  part.weight = reinterpret_cast<const std::byte*>(work.scratch);
  part.first_tile = 0, part.last_tile = 1;
  part.x = work.x;
  for (int64_t tile = work.first_tile; tile < work.last_tile; ++tile) {
    const int64_t output = tile * kQuantRows;
    widen({work.weight + tile * tile_bytes, work.lead, work.x.columns, work.scratch});
    part.rows = std::min<int64_t>(kQuantRows, work.rows - output);
    part.bias = work.bias == nullptr ? nullptr : work.bias + output;
    part.y = work.y.column_range(output, part.rows);
    multiply(part);
  }
}

}  // namespace coprime
