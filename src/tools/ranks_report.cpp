#include "tools/ranks_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace coprime {

nlohmann::json ranks_json(std::span<const RankReady> ranks) {
  nlohmann::json list = nlohmann::json::array();
  for (const RankReady& rank : ranks) {
    list.push_back({{"device", rank.device},
                    {"cores", rank.cores},
                    {"weight_bytes", rank.weight_bytes},
                    {"cache_bytes", rank.cache_bytes},
                    {"resident_bytes", rank.resident_bytes}});
  }
  return list;
}

std::string rank_text(const RankReady& rank) {
  return fmt::format("{:.2f} MiB weights, {:.2f} MiB cache; {}, {}", static_cast<double>(rank.weight_bytes) / 1048576,
                     static_cast<double>(rank.cache_bytes) / 1048576, rank.device, rank.cores);
}

nlohmann::ordered_json counts_json(const Counts& counts) {
  return {{"q_heads", counts.q_heads},
          {"kv_heads", counts.kv_heads},
          {"linear_key_heads", counts.linear_key_heads},
          {"linear_value_heads", counts.linear_value_heads},
          {"intermediate", counts.intermediate},
          {"vocab", counts.vocab}};
}

}  // namespace coprime
