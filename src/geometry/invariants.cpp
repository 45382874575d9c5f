#include "geometry/invariants.h"

#include <vector>

#include "base/check.h"

namespace coprime {
namespace {

constexpr int64_t kVocabUnit = 64;

struct NamedAxis {
  Axis axis;
  std::string_view name;
};

// The sections of kConvolution are q, k and v: not one ascending run over ranks.
constexpr NamedAxis kAxes[] = {
    {Axis::kHidden, "hidden"},   {Axis::kQuery, "q_proj rows"},         {Axis::kQueryOut, "query"},
    {Axis::kKv, "KV"},           {Axis::kIntermediate, "intermediate"}, {Axis::kVocab, "vocabulary"},
    {Axis::kValueDim, "values"}, {Axis::kValueHeads, "value heads"}};

}  // namespace

void check_counts(const ModelShape& shape, const PlanOptions& options, const Counts& padded) {
  const int w = options.pad_for;
  COPRIME_CHECK(shape.q_heads % shape.kv_heads == 0, "{} / {}", shape.q_heads, shape.kv_heads);
  COPRIME_CHECK(padded.q_heads == shape.gqa() * padded.kv_heads, "GQA is {}, not {} / {}", shape.gqa(), padded.q_heads,
                padded.kv_heads);
  COPRIME_CHECK(padded.kv_heads >= shape.kv_heads, "{} < {}", padded.kv_heads, shape.kv_heads);
  COPRIME_CHECK(shape.kv_heads % w != 0 || padded.kv_heads == shape.kv_heads, "{} KV heads for {}, {} before",
                padded.kv_heads, w, shape.kv_heads);
  COPRIME_CHECK(padded.kv_heads % w == 0 ||
                    (w % shape.kv_heads == 0 && padded.q_heads == shape.q_heads && shape.q_heads % w == 0),
                "{} KV heads for {} ranks", padded.kv_heads, w);
  COPRIME_CHECK(int64_t{padded.linear_value_heads} * shape.linear.key_heads ==
                    int64_t{shape.linear.value_heads} * padded.linear_key_heads,
                "value heads per key head: {} / {}, not {} / {}", shape.linear.value_heads, shape.linear.key_heads,
                padded.linear_value_heads, padded.linear_key_heads);
  COPRIME_CHECK(padded.linear_key_heads >= shape.linear.key_heads && padded.linear_key_heads % w == 0,
                "{} linear key heads", padded.linear_key_heads);
  COPRIME_CHECK(padded.intermediate >= shape.intermediate && padded.intermediate % options.mlp_unit == 0,
                "{} in units of {}", padded.intermediate, options.mlp_unit);
  COPRIME_CHECK(padded.vocab >= shape.vocab && padded.vocab % (kVocabUnit * w) == 0, "vocabulary {} for {}",
                padded.vocab, w);
}

void check_shares(std::string_view axis, std::span<const AxisMap> shares, int64_t real, int copies, bool uniform) {
  int64_t next = 0, held = 0;
  int copy = 0;  // of the share that starts at `next`
  for (const AxisMap& share : shares) {
    COPRIME_CHECK(!uniform || share.extent == shares[0].extent, "{}: extent {} beside {}", axis, share.extent,
                  shares[0].extent);
    int64_t local = 0;
    const int64_t first = share.real.empty() ? real : share.real[0].global;
    if (copy > 0 && copy < copies) {
      COPRIME_CHECK(!share.real.empty() && first == next, "{}: copy {} starts at {}, not at {}", axis, copy, first,
                    next);
    } else {
      next = held, copy = 0;
      COPRIME_CHECK(first == next, "{}: a share starts at {}, not at {}", axis, first, next);
    }
    int64_t end = first;
    for (const Span& span : share.real) {
      COPRIME_CHECK(span.count > 0 && span.local >= local && span.global == end, "{}: span {}+{} at {}", axis,
                    span.global, span.count, span.local);
      local = span.local + span.count, end = span.global + span.count;
    }
    COPRIME_CHECK(local <= share.extent && end <= real, "{}: {} of {} elements, up to {} of {}", axis, local,
                  share.extent, end, real);
    COPRIME_CHECK(copy == 0 || share.real.empty() || end == held, "{}: copies end at {} and {}", axis, end, held);
    held = std::max(held, end);
    if (!share.real.empty()) ++copy;
  }
  COPRIME_CHECK(held == real, "{}: {} of {} elements are held", axis, held, real);
  COPRIME_CHECK(copy % copies == 0, "{}: {} copies of the last share, not {}", axis, copy, copies);
}

void check_heads(const ModelShape& shape, const Counts& local, const AxisMap& queries, const AxisMap& kv) {
  COPRIME_CHECK((local.q_heads == 0) == (local.kv_heads == 0), "{} query heads, {} KV heads", local.q_heads,
                local.kv_heads);
  COPRIME_CHECK(queries.real.empty() == kv.real.empty(), "real heads of one kind only");
  if (queries.real.empty()) return;
  COPRIME_CHECK(local.q_heads % local.kv_heads == 0, "{} query heads, {} KV heads", local.q_heads, local.kv_heads);
  const int64_t real_heads = queries.real[0].count / shape.head_dim, first = queries.real[0].global / shape.head_dim;
  const int64_t real_kv = kv.real[0].count / shape.head_dim, first_kv = kv.real[0].global / shape.head_dim;
  for (int64_t h = 0; h < real_heads; ++h) {
    const int64_t local_kv = h / (local.q_heads / local.kv_heads);
    COPRIME_CHECK(local_kv < real_kv && first_kv + local_kv == (first + h) / shape.gqa(),
                  "query head {} reads KV head {}", first + h, first_kv + local_kv);
  }
}

void check_invariants(const ShardPlan& plan) {
  const ModelShape& shape = plan.shape();
  COPRIME_CHECK(shape.layer_kinds.size() == static_cast<size_t>(shape.layers), "{} kinds of {} layers",
                shape.layer_kinds.size(), shape.layers);
  COPRIME_CHECK(shape.rope.rotary_dim <= shape.head_dim, "{} of {} rotated", shape.rope.rotary_dim, shape.head_dim);
  check_counts(shape, plan.options(), plan.padded());
  const bool uniform = plan.options().dummies == Dummies::kHeld;
  for (const NamedAxis& axis : kAxes) {
    std::vector<AxisMap> shares;
    for (int rank = 0; rank < plan.ranks(); ++rank) shares.push_back(plan.axis_map(axis.axis, rank));
    const int copies = axis.axis == Axis::kKv ? plan.kv_copies() : 1;
    check_shares(axis.name, shares, plan.real_size(axis.axis), copies, uniform);
  }
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    check_heads(shape, plan.local(rank), plan.axis_map(Axis::kQueryOut, rank), plan.axis_map(Axis::kKv, rank));
  }
}

}  // namespace coprime
