#include "gate/schedule.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace coprime {

std::string_view gate_name(GateKind kind) {
  switch (kind) {
    case GateKind::kEmbedding:
      return "EMBED";
    case GateKind::kAttention:
      return "ATTN";
    case GateKind::kFfn:
      return "FFN";
    case GateKind::kAttentionInput:
      return "ATTN_IN";
    case GateKind::kAttentionOutput:
      return "ATTN_OUT";
    case GateKind::kFfnInput:
      return "FFN_IN";
    case GateKind::kFfnOutput:
      return "FFN_OUT";
    case GateKind::kTrial:
      return "TRIAL";
  }
  return "?";
}

std::string gate_text(const GateEntry& entry) {
  if (entry.kind == GateKind::kTrial) return fmt::format("exchange {} of the trial", entry.layer);
  if (entry.layer < 0) return fmt::format("gate {}", gate_name(entry.kind));
  return fmt::format("layer {} gate {}", entry.layer, gate_name(entry.kind));
}

size_t largest_slot_bytes(const GateSchedule& schedule) {
  size_t largest = 0;
  for (const GateEntry& entry : schedule) {
    COPRIME_CHECK(entry.row_bytes >= 0 && entry.max_rows >= 0, "{}: {} rows of {} bytes", gate_text(entry),
                  entry.max_rows, entry.row_bytes);
    int64_t bytes = 0;
    if (__builtin_mul_overflow(entry.row_bytes, entry.max_rows, &bytes)) {
      fail(ErrorKind::kUsage, "{} would move {} rows of {} bytes: use a smaller --prefill-chunk", gate_text(entry),
           entry.max_rows, entry.row_bytes);
    }
    largest = std::max(largest, static_cast<size_t>(bytes));
  }
  return largest;
}

}  // namespace coprime
