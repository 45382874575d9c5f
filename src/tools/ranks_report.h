// What every report tells of the ranks that ran.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "engine/messages.h"

namespace coprime {

// By rank: {"device", "cores", "weight_bytes", "cache_bytes", "resident_bytes"}.
nlohmann::json ranks_json(std::span<const RankReady> ranks);

// "12.34 MiB weights, 1.00 MiB cache; cpu avx2, 2 threads, cores 0-1".
std::string rank_text(const RankReady& rank);

}  // namespace coprime
