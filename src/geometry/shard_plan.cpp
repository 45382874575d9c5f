#include "geometry/shard_plan.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/limits.h"
#include "geometry/file_order.h"
#include "geometry/invariants.h"
#include "geometry/rules.h"

namespace coprime {
namespace {

constexpr int64_t kVocabUnit = 64, kHiddenUnit = 16, kMaxMlpUnit = 4096, kMaxMlpWidth = 1 << 24;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

void check_options(const ModelShape& shape, PlanOptions* options) {
  if (options->ranks < 1 || options->ranks > kMaxRanks) {
    fail(ErrorKind::kUsage, "{} ranks; expected 1 to {}", options->ranks, kMaxRanks);
  }
  if (options->pad_for == 0) options->pad_for = options->ranks;
  if (options->pad_for < 1 || options->pad_for > kMaxRanks) {
    fail(ErrorKind::kUsage, "a geometry padded for {} ranks; expected 1 to {}", options->pad_for, kMaxRanks);
  }
  if (options->mlp_unit == 0) options->mlp_unit = shape.mlp_unit;
  if (options->mlp_unit < 1 || options->mlp_unit > kMaxMlpUnit) {
    fail(ErrorKind::kUsage, "an MLP unit of {}; expected 1 to {}", options->mlp_unit, kMaxMlpUnit);
  }
  if (options->mlp_width == 0) return;
  if (options->mlp_width < shape.intermediate || options->mlp_width > kMaxMlpWidth) {
    fail(ErrorKind::kUsage, "an MLP width of {}; expected at least the model's {} and at most {}", options->mlp_width,
         shape.intermediate, kMaxMlpWidth);
  }
  if (options->mlp_width % options->mlp_unit != 0) {
    fail(ErrorKind::kUsage, "an MLP width of {}; expected a multiple of the unit {}", options->mlp_width,
         options->mlp_unit);
  }
}

// Whole copies of one KV head each, and an even share of its query heads.
bool can_replicate(int q_heads, int kv_heads, int ranks) {
  return ranks > kv_heads && ranks % kv_heads == 0 && q_heads % ranks == 0;
}

Counts widen(const ModelShape& shape, const PlanOptions& options) {
  const int w = options.pad_for;
  Counts counts;
  counts.kv_heads = shape.kv_heads;
  if (!can_replicate(shape.q_heads, shape.kv_heads, w)) counts.kv_heads = static_cast<int>(round_up(shape.kv_heads, w));
  counts.q_heads = shape.gqa() * counts.kv_heads;
  if (shape.linear.key_heads > 0) {
    counts.linear_key_heads = static_cast<int>(round_up(shape.linear.key_heads, w));
    counts.linear_value_heads = shape.linear.value_heads / shape.linear.key_heads * counts.linear_key_heads;
  }
  counts.intermediate =
      options.mlp_width != 0 ? options.mlp_width : round_up(shape.intermediate, int64_t{w} * options.mlp_unit);
  counts.vocab = round_up(shape.vocab, kVocabUnit * w);
  return counts;
}

AxisMap whole(int64_t size) { return {{{0, 0, size}}, size}; }

// The one span of a share, or an empty one where it would stand.
Span only_span(const AxisMap& map, int64_t size) {
  COPRIME_CHECK(map.real.size() <= 1, "{} spans", map.real.size());
  return map.real.empty() ? Span{size, 0, 0} : map.real[0];
}

}  // namespace

int64_t AxisMap::real_count() const {
  int64_t count = 0;
  for (const Span& span : real) count += span.count;
  return count;
}

ShardPlan::ShardPlan(ModelShape shape, PlanOptions options) : shape_(std::move(shape)), options_(options) {
  check_options(shape_, &options_);
  padded_ = widen(shape_, options_);
  if (can_replicate(padded_.q_heads, padded_.kv_heads, ranks())) kv_copies_ = ranks() / padded_.kv_heads;
  rules_ = make_rules(shape_, options_.exact);
  check_invariants(*this);
}

Counts ShardPlan::stock() const {
  return {shape_.q_heads,      shape_.kv_heads, shape_.linear.key_heads, shape_.linear.value_heads,
          shape_.intermediate, shape_.vocab};
}

bool ShardPlan::applies(const Rule& rule, int layer) const {
  if (layer < 0 || layer >= shape_.layers) return layer == -1 && rule.scope == Scope::kModel;
  const LayerKind kind = shape_.layer_kinds[static_cast<size_t>(layer)];
  return rule.scope == Scope::kEveryLayer ||
         rule.scope == (kind == LayerKind::kFullAttention ? Scope::kFullLayers : Scope::kLinearLayers);
}

std::string ShardPlan::tensor_name(const Rule& rule, int layer) const {
  COPRIME_CHECK(applies(rule, layer), "{} of layer {}", rule.suffix, layer);
  if (rule.scope == Scope::kModel) return rule.suffix;
  if (shape_.container == Container::kGguf) return fmt::format("blk.{}.{}", layer, rule.suffix);
  return fmt::format("{}layers.{}.{}", shape_.tensor_prefix, layer, rule.suffix);
}

ShardPlan::Share ShardPlan::share(int64_t units, int rank) const {
  COPRIME_CHECK(rank >= 0 && rank < ranks(), "rank {} of {}", rank, ranks());
  const int64_t each = ceil_div(units, ranks()), first = std::min(units, rank * each);
  return {first, std::min(each, units - first), each};
}

// `real` elements of the axis are real, the first ones; the rest of the units are dummies.
AxisMap ShardPlan::map_of_units(Share held, int64_t unit, int64_t real) const {
  const int64_t first = held.first * unit, count = std::clamp<int64_t>(real - first, 0, held.count * unit);
  AxisMap map;
  if (count > 0) map.real.push_back({first, 0, count});
  map.extent = options_.dummies == Dummies::kHeld ? held.held * unit : count;
  return map;
}

// Query heads, `elements` each, by whole KV groups, or an even share of a group where KV heads are replicated.
AxisMap ShardPlan::heads_map(int rank, int64_t elements) const {
  const int64_t per_unit = kv_copies_ > 1 ? padded_.q_heads / ranks() : shape_.gqa();
  return map_of_units(share(padded_.q_heads / per_unit, rank), per_unit * elements, shape_.q_heads * elements);
}

// q, k and v of this rank's heads, one behind another, each with its own gap.
AxisMap ShardPlan::sections_map(int rank) const {
  const LinearAttentionShape& linear = shape_.linear;
  const Share held = share(padded_.linear_key_heads, rank);
  const int64_t keys = int64_t{linear.key_heads} * linear.key_dim,
                values = int64_t{linear.value_heads} * linear.value_dim;
  const int64_t value_unit = linear.value_heads / linear.key_heads * int64_t{linear.value_dim};
  const std::array<AxisMap, 3> parts = {map_of_units(held, linear.key_dim, keys),
                                        map_of_units(held, linear.key_dim, keys),
                                        map_of_units(held, value_unit, values)};
  const std::array<int64_t, 3> starts = {0, keys, 2 * keys};
  AxisMap map;
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const Span& span : parts[i].real)
      map.real.push_back({starts[i] + span.global, map.extent + span.local, span.count});
    map.extent += parts[i].extent;
  }
  return map;
}

AxisMap ShardPlan::axis_map(Axis axis, int rank) const {
  const LinearAttentionShape& linear = shape_.linear;
  const bool is_linear = axis == Axis::kConvolution || axis == Axis::kValueDim || axis == Axis::kValueHeads;
  if (is_linear && linear.key_heads == 0) return {};
  const int64_t ratio = linear.key_heads > 0 ? linear.value_heads / linear.key_heads : 0;
  switch (axis) {
    case Axis::kHidden:
      return map_of_units(share(ceil_div(shape_.hidden, kHiddenUnit), rank), kHiddenUnit, shape_.hidden);
    case Axis::kQuery:
      return heads_map(rank, shape_.q_rows_per_head());
    case Axis::kQueryOut:
      return heads_map(rank, shape_.head_dim);
    case Axis::kKv: {
      Share held = share(padded_.kv_heads, rank);
      if (kv_copies_ > 1) held = {rank / kv_copies_, 1, 1};
      return map_of_units(held, shape_.head_dim, int64_t{shape_.kv_heads} * shape_.head_dim);
    }
    case Axis::kIntermediate:
      return map_of_units(share(padded_.intermediate / options_.mlp_unit, rank), options_.mlp_unit,
                          shape_.intermediate);
    case Axis::kVocab:
      return map_of_units(share(padded_.vocab / kVocabUnit, rank), kVocabUnit, shape_.vocab);
    case Axis::kConvolution:
      return sections_map(rank);
    case Axis::kValueDim: {
      const int64_t unit = ratio * linear.value_dim;
      return map_of_units(share(padded_.linear_key_heads, rank), unit, linear.key_heads * unit);
    }
    case Axis::kValueHeads:
      break;
  }
  return map_of_units(share(padded_.linear_key_heads, rank), ratio, linear.value_heads);
}

int64_t axis_size(const ModelShape& shape, const Counts& counts, Axis axis) {
  const LinearAttentionShape& linear = shape.linear;
  switch (axis) {
    case Axis::kHidden:
      return shape.hidden;
    case Axis::kQuery:
      return int64_t{counts.q_heads} * shape.q_rows_per_head();
    case Axis::kQueryOut:
      return int64_t{counts.q_heads} * shape.head_dim;
    case Axis::kKv:
      return int64_t{counts.kv_heads} * shape.head_dim;
    case Axis::kIntermediate:
      return counts.intermediate;
    case Axis::kVocab:
      return counts.vocab;
    case Axis::kConvolution:
      return 2 * int64_t{counts.linear_key_heads} * linear.key_dim +
             int64_t{counts.linear_value_heads} * linear.value_dim;
    case Axis::kValueDim:
      return int64_t{counts.linear_value_heads} * linear.value_dim;
    case Axis::kValueHeads:
      break;
  }
  return counts.linear_value_heads;
}

int64_t ShardPlan::real_size(Axis axis) const { return axis_size(shape_, stock(), axis); }
int64_t ShardPlan::padded_size(Axis axis) const { return axis_size(shape_, padded_, axis); }

AxisMap ShardPlan::row_map(const Rule& rule, int rank) const {
  if (!rule.axis || rule.op == Operation::kColumns) return whole(rule.shape[0]);
  return axis_map(*rule.axis, rank);
}

AxisMap ShardPlan::column_map(const Rule& rule, int rank) const {
  if (rule.op == Operation::kColumns) return axis_map(rule.axis.value(), rank);
  int64_t columns = 1;
  for (size_t i = 1; i < rule.shape.size(); ++i) columns *= rule.shape[i];
  return whole(columns);
}

AxisMap ShardPlan::file_row_map(const Rule& rule, int rank) const {
  return in_file_order(shape_, rule, rule.row_order, row_map(rule, rank));
}

AxisMap ShardPlan::file_column_map(const Rule& rule, int rank) const {
  return in_file_order(shape_, rule, rule.column_order, column_map(rule, rank));
}

Counts ShardPlan::local(int rank) const {
  Counts counts;
  counts.q_heads = static_cast<int>(axis_map(Axis::kQueryOut, rank).extent / shape_.head_dim);
  counts.kv_heads = static_cast<int>(axis_map(Axis::kKv, rank).extent / shape_.head_dim);
  counts.linear_value_heads = static_cast<int>(axis_map(Axis::kValueHeads, rank).extent);
  if (shape_.linear.key_heads > 0) {
    counts.linear_key_heads = counts.linear_value_heads / (shape_.linear.value_heads / shape_.linear.key_heads);
  }
  counts.intermediate = axis_map(Axis::kIntermediate, rank).extent;
  counts.vocab = axis_map(Axis::kVocab, rank).extent;
  return counts;
}

Span ShardPlan::vocab_rows(int rank) const { return only_span(axis_map(Axis::kVocab, rank), shape_.vocab); }
Span ShardPlan::hidden_rows(int rank) const { return only_span(axis_map(Axis::kHidden, rank), shape_.hidden); }
Span ShardPlan::query_elements(int rank) const {
  return only_span(axis_map(Axis::kQueryOut, rank), real_size(Axis::kQueryOut));
}
Span ShardPlan::linear_value_elements(int rank) const {
  return only_span(axis_map(Axis::kValueDim, rank), real_size(Axis::kValueDim));
}
Span ShardPlan::intermediate_elements(int rank) const {
  return only_span(axis_map(Axis::kIntermediate, rank), shape_.intermediate);
}

uint64_t ShardPlan::hash() const {
  const ModelShape& s = shape_;
  const Rope& r = s.rope;
  const LinearAttentionShape& l = s.linear;
  std::string text = fmt::format("{} {} | {} {} {} {} | {} {} {} {} | {} {} {} {} {} {} {} | ", s.architecture_name,
                                 s.tensor_prefix, s.hidden, s.intermediate, s.vocab, s.max_positions, s.layers,
                                 s.q_heads, s.kv_heads, s.head_dim, std::bit_cast<uint32_t>(s.rms_eps), s.tied_head,
                                 s.qkv_bias, s.qk_norm, s.gated_attention, s.norm_plus_one, s.mtp_layers);
  text += fmt::format("{} {} {} | ", std::bit_cast<uint64_t>(r.theta), r.rotary_dim, r.llama3);
  for (double value : {r.factor, r.low_freq_factor, r.high_freq_factor, r.original_max_positions}) {
    text += fmt::format("{} ", std::bit_cast<uint64_t>(value));
  }
  for (float divisor : r.divisors) text += fmt::format("{} ", std::bit_cast<uint32_t>(divisor));
  text += fmt::format("| {} {} | ", static_cast<int>(s.container), s.negative_decay);
  for (LayerKind kind : s.layer_kinds) text += kind == LayerKind::kFullAttention ? 'f' : 'l';
  text += fmt::format(" | {} {} {} {} {} | ", l.key_heads, l.value_heads, l.key_dim, l.value_dim, l.conv_taps);
  text += fmt::format("{} {} {} {} {} {} | ", options_.ranks, options_.pad_for, options_.mlp_width, options_.mlp_unit,
                      options_.exact, static_cast<int>(options_.dummies));
  text += fmt::format("{} {} {} {} {} {} {}", padded_.q_heads, padded_.kv_heads, padded_.linear_key_heads,
                      padded_.linear_value_heads, padded_.intermediate, padded_.vocab, kv_copies_);
  text += fmt::format(" | {}", s.quantization.text());
  return hash_bytes(std::as_bytes(std::span(text)));
}

}  // namespace coprime
