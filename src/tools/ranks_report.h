// What several reports tell: the ranks that ran, the counts of a geometry.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "engine/messages.h"
#include "geometry/shard_plan.h"

namespace coprime {

// By rank: {"device", "cores", "weight_bytes", "cache_bytes", "resident_bytes"}.
nlohmann::json ranks_json(std::span<const RankReady> ranks);

// {"q_heads", "kv_heads", "linear_key_heads", "linear_value_heads", "intermediate", "vocab"}.
nlohmann::ordered_json counts_json(const Counts& counts);

// "12.34 MiB weights, 1.00 MiB cache; cpu avx2, 2 threads, cores 0-1".
std::string rank_text(const RankReady& rank);

}  // namespace coprime
