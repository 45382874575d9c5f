// What a KV cache's change of layout costs on a chip, in closed form: the bytes on every link and HBM port on the way
// (along the SIPs first, then along the CUBEs, then along the PEs), and the time of the busiest one. Nothing else is
// simulated: it takes at least that long.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "attention/kv_reshard.h"
#include "sim/chip.h"

namespace coprime::sim {

struct ReshardCost {
  int64_t bytes = 0;                      // of keys and values that move, in bf16
  std::array<int64_t, 3> byte_hops = {};  // between PEs, CUBEs, SIPs
  Tick at_least = 0;
  std::string_view by = "nothing";  // what takes that long: hbm, PE links, CUBE links, SIP links
};

// chip.pes: as many as the layouts have.
ReshardCost reshard_cost(const Chip& chip, std::span<const attention::KvMove> moves, int64_t d);

}  // namespace coprime::sim
