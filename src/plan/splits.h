// The ways to split a model over ranks: what each rank holds, and which exchanges a step needs. spec: pad (A), copy KV
// heads (B), overlapping heads (C), unequal shares (C'), KV along the sequence (D), attention on every rank (E), layers
// in a row (F); and the exact mode of A.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/load.h"

namespace coprime {

inline constexpr int64_t kVocabUnit = 64;  // ids that stay together

// Global counts of a geometry that is widened so that ranks divide it.
struct PaddedCounts {
  int64_t q_heads = 0, kv_heads = 0, key_heads = 0, value_heads = 0;
  int64_t width = 0, expert_width = 0, shared_width = 0, vocab = 0;
  bool operator==(const PaddedCounts&) const = default;
};
PaddedCounts stock_counts(const ModelNumbers& model);

// kv' = w ceil(kv / w) with q' = (q / kv) kv', or stock heads where w is a multiple of kv and divides q (each KV head
// is then copied); key heads to w with their ratio kept; widths to w times the format's unit; the vocabulary to 64 w.
// Heads of latent attention alone go to w times as many as fill whole blocks of the format.
PaddedCounts pad_counts(const ModelNumbers& model, const PlanFormat& format, int64_t ranks);

// Whether `ranks` ranks copy the KV heads, each then on ranks / kv of them: ranks a multiple of kv that divides q.
bool copies_kv_heads(const PaddedCounts& counts, int64_t ranks);

// The smallest multiple of `ranks` whose KV elements a token equal the target's, GQA kept. Nothing where there is none.
std::optional<PaddedCounts> pad_drafter_counts(const ModelNumbers& drafter, const PlanFormat& format, int64_t ranks,
                                               int64_t target_kv_elements);

enum class SplitKind : uint8_t { kPad, kExact, kReplicate, kOverlap, kShares, kSequence, kDuplicate, kPipeline };

// So many exchanges a step, each of `row_bytes` a token from every rank.
struct GateUse {
  int64_t count = 0;
  double row_bytes = 0;
};

struct Split {
  SplitKind kind = SplitKind::kPad;
  std::string_view name, title;
  bool runs = true;              // coprime has it
  std::string unfit;             // why this model or rank count cannot have it; empty: it can
  std::vector<RankLoad> held;    // by rank, without dummies
  std::vector<RankLoad> padded;  // by rank, with those that kernels of one shape for all ranks would hold
  std::vector<GateUse> gates;
  bool in_turns = false;  // ranks work one after the other
};

struct SplitOptions {
  int64_t ranks = 1, pad_for = 1;
  std::vector<double> shares;  // by rank, any unit; empty: equal
};

// All of them, in the order of the enumeration.
std::vector<Split> all_splits(const ModelNumbers& model, const PlanFormat& format, const SplitOptions& options);

}  // namespace coprime
