#include "plan/splits.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include <fmt/format.h>

namespace coprime {
namespace {

constexpr int64_t kFloatBytes = 4, kHiddenUnit = 16;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

bool can_copy(int64_t q_heads, int64_t kv_heads, int64_t ranks) {
  return ranks > kv_heads && ranks % kv_heads == 0 && q_heads % ranks == 0;
}

// `rank`'s run of an axis of `real` elements that is cut in units into equal runs of ceil(units / ranks).
struct Run {
  int64_t first = 0, count = 0, padded = 0;
};
Run run_of(int64_t real, int64_t padded, int64_t unit, int64_t ranks, int64_t rank) {
  const int64_t units = padded / unit, each = ceil_div(units, ranks), first = std::min(units, rank * each) * unit;
  const int64_t held = std::min(each * unit, padded - first);
  return {std::min(first, real), std::clamp<int64_t>(real - first, 0, held), each * unit};
}

// Units shared out in proportion; the largest remainders get what rounding leaves.
std::vector<int64_t> proportional(int64_t units, std::span<const double> shares) {
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<int64_t> counts;
  std::vector<std::pair<double, size_t>> remainders;
  int64_t left = units;
  for (size_t rank = 0; rank < shares.size(); ++rank) {
    const double exact = static_cast<double>(units) * shares[rank] / all;
    counts.push_back(static_cast<int64_t>(exact));
    remainders.emplace_back(static_cast<double>(counts.back()) - exact, rank);
    left -= counts.back();
  }
  std::ranges::sort(remainders);
  for (int64_t i = 0; i < left; ++i) ++counts[remainders[static_cast<size_t>(i) % remainders.size()].second];
  return counts;
}

class Splitter {
 public:
  Splitter(const ModelNumbers& model, const PlanFormat& format, const SplitOptions& options)
      : m_(model),
        format_(format),
        options_(options),
        w_(options.ranks),
        padded_(pad_counts(model, format, options.pad_for)) {}

  Split pad(bool exact) const {
    Split split{.kind = exact ? SplitKind::kExact : SplitKind::kPad,
                .name = exact ? "exact" : "pad",
                .title = exact ? "pad, the same bits at every N" : "pad with dummy heads"};
    if (m_.q_heads % m_.kv_heads != 0) {
      split.unfit = fmt::format("{} query heads are no multiple of {} KV heads", m_.q_heads, m_.kv_heads);
      return split;
    }
    for (int64_t rank = 0; rank < w_; ++rank) {
      split.held.push_back(pad_load(rank, false));
      split.padded.push_back(pad_load(rank, true));
    }
    if (exact) {
      split.gates = exact_gates(split);
    } else {
      split.gates = {{1 + 2 * m_.layers, row_bytes()}};
    }
    return split;
  }

  // r = w / gcd(kv, w) copies of each KV head, each with its part of the group.
  Split replicate() const {
    Split split{.kind = SplitKind::kReplicate, .name = "copy", .title = "copy KV heads, cut their groups"};
    split.runs = false;
    split.gates = {{1 + 2 * m_.layers, row_bytes()}};
    if (m_.latent()) split.unfit = "latent attention has one cache for all heads already";
    if (m_.q_heads % m_.kv_heads != 0) split.unfit = "query heads are no multiple of KV heads";
    const int64_t divisor = std::gcd(m_.kv_heads, w_), copies = w_ / divisor;
    const int64_t per_copy = split.unfit.empty() ? ceil_div(m_.gqa(), copies) : 0, kv = m_.kv_heads / divisor;
    for (int64_t rank = 0; rank < w_ && split.unfit.empty(); ++rank) {
      const int64_t copy = rank % copies;
      RankLoad load = other_axes(rank, false), dummies = other_axes(rank, true);
      load.kv_heads = dummies.kv_heads = kv;
      load.q_heads = kv * std::clamp<int64_t>(m_.gqa() - copy * per_copy, 0, per_copy);
      dummies.q_heads = kv * per_copy;
      load.o_heads = load.q_heads;
      dummies.o_heads = dummies.q_heads;
      split.held.push_back(load);
      split.padded.push_back(dummies);
    }
    return split;
  }

  // Runs of ceil(q / w) query heads; each rank holds the KV heads that its run reads.
  Split overlap() const {
    Split split{.kind = SplitKind::kOverlap, .name = "overlap", .title = "overlapping heads, no dummies"};
    split.runs = false;
    split.gates = {{1 + 2 * m_.layers, row_bytes()}};
    const int64_t each = ceil_div(m_.q_heads, w_);
    for (int64_t rank = 0; rank < w_; ++rank) {
      RankLoad load = other_axes(rank, false), uniform = other_axes(rank, true);
      const int64_t first = std::min(m_.q_heads, rank * each), last = std::min(m_.q_heads, first + each);
      load.q_heads = load.o_heads = last - first;
      load.kv_heads = kv_touched(first, last);
      uniform.q_heads = uniform.o_heads = each;
      for (int64_t other = 0; other < w_; ++other) {
        const int64_t begin = std::min(m_.q_heads, other * each);
        uniform.kv_heads = std::max(uniform.kv_heads, kv_touched(begin, std::min(m_.q_heads, begin + each)));
      }
      split.held.push_back(load);
      split.padded.push_back(uniform);
    }
    return split;
  }

  // Whole KV groups, and everything else, in proportion to the ranks' shares.
  Split shares() const {
    Split split{.kind = SplitKind::kShares, .name = "shares", .title = "unequal shares, by the ranks' speed"};
    split.runs = false;
    split.gates = {{1 + 2 * m_.layers, row_bytes()}};
    std::vector<double> wanted = options_.shares;
    if (wanted.empty()) wanted.assign(static_cast<size_t>(w_), 1.0);
    if (m_.q_heads % m_.kv_heads != 0) {
      split.unfit = "query heads are no multiple of KV heads";
      return split;
    }
    const auto groups = proportional(m_.kv_heads, wanted), keys = proportional(m_.linear.key_heads, wanted);
    const auto cut = [&](int64_t count, int64_t unit) {
      auto parts = proportional(ceil_div(count, unit), wanted);
      int64_t left = count;
      for (int64_t& part : parts) left -= part = std::min(part * unit, left);
      return parts;
    };
    const auto widths = cut(m_.intermediate, format_.mlp_unit), experts = cut(m_.expert_width, format_.mlp_unit),
               always = cut(m_.shared_width, format_.mlp_unit), vocab = cut(m_.vocab, kVocabUnit);
    for (size_t rank = 0; rank < static_cast<size_t>(w_); ++rank) {
      const int64_t kv = groups[rank], q = kv * m_.gqa();
      split.held.push_back({.q_heads = q,
                            .kv_heads = kv,
                            .o_heads = q,
                            .key_heads = keys[rank],
                            .width = widths[rank],
                            .expert_width = experts[rank],
                            .shared_width = always[rank],
                            .vocab = vocab[rank]});
    }
    split.padded = split.held;
    return split;
  }

  // The projections to heads over the largest part of the ranks that divides the KV heads; the context over the rest.
  Split sequence() const {
    Split split{.kind = SplitKind::kSequence, .name = "sequence", .title = "KV along the sequence"};
    split.runs = false;
    const int64_t by_heads = m_.latent() ? 1 : std::gcd(m_.kv_heads, w_), by_tokens = w_ / by_heads;
    if (by_tokens == 1) split.unfit = fmt::format("{} ranks divide {} KV heads", w_, m_.kv_heads);
    const int64_t q_heads = ceil_div(m_.q_heads, by_heads), each = ceil_div(m_.q_heads, w_);
    split.gates = {{1 + 2 * m_.layers, row_bytes()},
                   {m_.attention_layers, static_cast<double>(q_heads * (m_.head_dim + 2) * kFloatBytes)}};
    for (int64_t rank = 0; rank < w_ && split.unfit.empty(); ++rank) {
      RankLoad load = other_axes(rank, false), uniform = other_axes(rank, true);
      for (RankLoad* part : {&load, &uniform}) {
        part->q_heads = q_heads;
        part->kv_heads = m_.kv_heads / by_heads;
        part->tokens = 1.0 / static_cast<double>(by_tokens);
      }
      load.o_heads = std::clamp<int64_t>(m_.q_heads - rank * each, 0, each);
      uniform.o_heads = each;
      split.held.push_back(load);
      split.padded.push_back(uniform);
    }
    return split;
  }

  // Every rank computes all of the attention; only MLPs and vocabulary are cut.
  Split duplicate() const {
    Split split{.kind = SplitKind::kDuplicate, .name = "duplicate", .title = "attention on every rank, MLPs cut"};
    split.runs = false;
    split.gates = {{1 + m_.layers, row_bytes()}};
    const RankLoad whole = whole_load(m_);
    for (int64_t rank = 0; rank < w_; ++rank) {
      RankLoad load = other_axes(rank, false), uniform = other_axes(rank, true);
      for (RankLoad* part : {&load, &uniform}) {
        part->q_heads = part->o_heads = whole.q_heads;
        part->kv_heads = whole.kv_heads;
        part->key_heads = whole.key_heads;
      }
      split.held.push_back(load);
      split.padded.push_back(uniform);
    }
    return split;
  }

  Split pipeline() const {
    Split split{.kind = SplitKind::kPipeline, .name = "pipeline", .title = "whole layers, one rank after the other"};
    split.runs = false;
    split.in_turns = true;
    split.gates = {{w_ - 1, row_bytes()}};
    if (w_ > m_.layers) split.unfit = fmt::format("{} layers for {} ranks", m_.layers, w_);
    for (int64_t rank = 0; rank < w_ && split.unfit.empty(); ++rank) {
      const Run layers = run_of(m_.layers, round_up(m_.layers, w_), 1, w_, rank);
      RankLoad load = whole_load(m_);
      load.layers = static_cast<double>(layers.count) / static_cast<double>(m_.layers);
      const bool last = rank == w_ - 1, first = rank == 0;
      load.vocab = last || (first && !m_.tied_head) ? m_.vocab : 0;
      split.held.push_back(load);
    }
    split.padded = split.held;
    return split;
  }

 private:
  double row_bytes() const { return static_cast<double>(m_.hidden * kFloatBytes); }

  int64_t kv_touched(int64_t first, int64_t last) const {
    if (first >= last) return 0;
    if (m_.latent()) return m_.kv_heads;
    // GQA as a fraction: head h reads KV head h * kv / q.
    return (last - 1) * m_.kv_heads / m_.q_heads - first * m_.kv_heads / m_.q_heads + 1;
  }

  // All axes but those of the attention's heads, padded by rule.
  RankLoad other_axes(int64_t rank, bool dummies) const {
    const auto count = [&](int64_t real, int64_t padded, int64_t unit) {
      const Run run = run_of(real, padded, unit, w_, rank);
      return dummies ? run.padded : run.count;
    };
    return {.key_heads = count(m_.linear.key_heads, padded_.key_heads, 1),
            .width = count(m_.intermediate, padded_.width, format_.mlp_unit),
            .expert_width = count(m_.expert_width, padded_.expert_width, format_.mlp_unit),
            .shared_width = count(m_.shared_width, padded_.shared_width, format_.mlp_unit),
            .vocab = count(m_.vocab, padded_.vocab, kVocabUnit)};
  }

  RankLoad pad_load(int64_t rank, bool dummies) const {
    RankLoad load = other_axes(rank, dummies);
    const bool copied = can_copy(padded_.q_heads, padded_.kv_heads, w_) && !m_.latent();
    const int64_t group = m_.latent() ? 1 : copied ? padded_.q_heads / w_ : m_.gqa();
    const Run queries = run_of(m_.q_heads, padded_.q_heads, group, w_, rank);
    load.q_heads = load.o_heads = dummies ? queries.padded : queries.count;
    if (m_.latent()) {
      load.kv_heads = load.q_heads;
    } else if (copied) {
      load.kv_heads = dummies || queries.count > 0 ? 1 : 0;
    } else {
      const Run kv = run_of(m_.kv_heads, padded_.kv_heads, 1, w_, rank);
      load.kv_heads = dummies ? kv.padded : kv.count;
    }
    return load;
  }

  // Inputs and outputs of the projections back are gathered; a slot is as wide as the widest share.
  std::vector<GateUse> exact_gates(const Split& split) const {
    int64_t query = 0, value = 0, width = 0;
    for (const RankLoad& load : split.held) {
      query = std::max(query, load.o_heads * m_.head_dim);
      if (m_.linear_layers > 0)
        value = std::max(value, load.key_heads * (m_.linear.value_heads / m_.linear.key_heads) * m_.linear.value_dim);
      width =
          std::max(width, m_.has_experts() ? load.expert_width * m_.active_experts + load.shared_width : load.width);
    }
    const int64_t out = ceil_div(ceil_div(m_.hidden, kHiddenUnit), w_) * kHiddenUnit;
    return {{1, row_bytes()},
            {m_.attention_layers, static_cast<double>(query * kFloatBytes)},
            {m_.linear_layers, static_cast<double>(value * kFloatBytes)},
            {m_.layers, static_cast<double>(width * kFloatBytes)},
            {2 * m_.layers, static_cast<double>(std::min(out, m_.hidden) * kFloatBytes)}};
  }

  const ModelNumbers& m_;
  const PlanFormat& format_;
  const SplitOptions& options_;
  const int64_t w_;
  const PaddedCounts padded_;
};

}  // namespace

PaddedCounts stock_counts(const ModelNumbers& m) {
  return {m.q_heads,      m.kv_heads,     m.linear.key_heads, m.linear.value_heads,
          m.intermediate, m.expert_width, m.shared_width,     m.vocab};
}

bool copies_kv_heads(const PaddedCounts& counts, int64_t ranks) {
  return can_copy(counts.q_heads, counts.kv_heads, ranks);
}

PaddedCounts pad_counts(const ModelNumbers& m, const PlanFormat& format, int64_t ranks) {
  PaddedCounts counts = stock_counts(m);
  const int64_t width_unit = ranks * format.mlp_unit;
  if (m.latent()) {
    // (heads a rank) x (a head's rows) in whole blocks: a multiple of lcm(rows, block) / rows heads.
    const int64_t together = std::lcm(m.q_rows, format.block) / m.q_rows;
    counts.q_heads = counts.kv_heads = round_up(m.q_heads, ranks * together);
  } else if (!can_copy(m.q_heads, m.kv_heads, ranks)) {
    counts.kv_heads = round_up(m.kv_heads, ranks);
    counts.q_heads = m.q_heads % m.kv_heads == 0 ? m.gqa() * counts.kv_heads : round_up(m.q_heads, ranks);
  }
  if (m.linear.key_heads > 0) {
    counts.key_heads = round_up(m.linear.key_heads, ranks);
    counts.value_heads = m.linear.value_heads / m.linear.key_heads * counts.key_heads;
  }
  counts.width = round_up(m.intermediate, width_unit);
  counts.expert_width = round_up(m.expert_width, width_unit);
  counts.shared_width = round_up(m.shared_width, width_unit);
  counts.vocab = round_up(m.vocab, kVocabUnit * ranks);
  return counts;
}

std::optional<PaddedCounts> pad_drafter_counts(const ModelNumbers& drafter, const PlanFormat& format, int64_t ranks,
                                               int64_t target_kv_elements) {
  PaddedCounts counts = pad_counts(drafter, format, ranks);
  const int64_t kv_heads = target_kv_elements / drafter.head_dim;
  if (target_kv_elements % drafter.head_dim != 0 || kv_heads % ranks != 0 || kv_heads < drafter.kv_heads ||
      drafter.q_heads % drafter.kv_heads != 0)
    return std::nullopt;
  counts.kv_heads = kv_heads;
  counts.q_heads = drafter.gqa() * kv_heads;
  return counts;
}

std::vector<Split> all_splits(const ModelNumbers& model, const PlanFormat& format, const SplitOptions& options) {
  const Splitter splitter(model, format, options);
  return {splitter.pad(false), splitter.pad(true),  splitter.replicate(), splitter.overlap(),
          splitter.shares(),   splitter.sequence(), splitter.duplicate(), splitter.pipeline()};
}

}  // namespace coprime
