// A program's gates, in the order in which every rank meets them. Pure data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace coprime {

enum class GateKind : uint8_t {
  kEmbedding,  // sum of the vocabulary shards' rows
  kAttention,  // partial sums after o_proj / out_proj
  kFfn,        // partial sums after down_proj
  // exact mode: inputs and outputs of the row-cut projections are gathered instead
  kAttentionInput,
  kAttentionOutput,
  kFfnInput,
  kFfnOutput,
  kTrial,  // of no program: links are measured
};
inline constexpr size_t kGateKinds = 8;

std::string_view gate_name(GateKind kind);  // "ATTN", "FFN", ...

struct GateEntry {
  GateKind kind = GateKind::kAttention;
  int layer = 0;          // -1 for the embedding; of a trial the exchange's place in the schedule
  int64_t row_bytes = 0;  // of one rank's largest contribution
  int max_rows = 0;
  DType type = DType::kF32;  // of a contribution: F32 or BF16
};

using GateSchedule = std::vector<GateEntry>;

// "layer 3 gate FFN", or "gate EMBED" for a gate of no layer; "exchange 3 of the trial".
std::string gate_text(const GateEntry& entry);

// What one slot must hold: the largest row_bytes * max_rows. Error(kUsage) when it overflows.
size_t largest_slot_bytes(const GateSchedule& schedule);

}  // namespace coprime
