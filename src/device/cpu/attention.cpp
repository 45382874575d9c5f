// Causal attention over pages of 64 tokens. Keys lie [d][64], so that lanes are tokens; values [64][d], so that lanes
// are elements. For each query and page, in token order: s[t] = scale * (sum over d ascending, fused); the running
// maximum; p = exp(s - m); l = fma(l, alpha, sum of p: 16 lanes, then pairwise); o = o * alpha, then fused with p[t]
// v[t], t ascending over the tokens below the query's limit. Nothing depends on which queries are taken together
// (OrderClass::kLanes, the same bits on every target).
#include "device/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/attention.cpp"
#include "hwy/foreach_target.h"

#include <algorithm>
#include <limits>

#include "device/cpu/kernels.h"
#include "device/cpu/lanes16-inl.h"
#include "device/cpu/math-inl.h"
#include "device/cpu/panel-inl.h"

#if COPRIME_SIMD
HWY_BEFORE_NAMESPACE();
namespace coprime::HWY_NAMESPACE {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// The queries of one work item, and their softmax so far.
struct Queries {
  const float* q[kAttentionQueries];
  float* o[kAttentionQueries];
  float* p[kAttentionQueries];  // rows of `weights`
  float m[kAttentionQueries], l[kAttentionQueries], alpha[kAttentionQueries];
  alignas(64) float weights[kAttentionQueries][kPageTokens];  // scores, then weights, of the current page
};

// The scores of query i over a page, [0, tokens), become weights; m, l and alpha follow.
void weigh_tokens(Queries& queries, int i, float scale, int64_t tokens, bool empty) {
  float* p = queries.p[i];
  Lanes highest = broadcast(kMinusInfinity);
  for (int64_t t = 0; t < tokens; t += 16) {
    const Lanes s = first_lanes(tokens - t, load(p + t) * broadcast(scale), broadcast(kMinusInfinity));
    store(s, p + t);
    highest = max(highest, s);
  }
  const float page_highest = max_of_lanes(highest), before = empty ? kMinusInfinity : queries.m[i];
  const float m = before > page_highest ? before : page_highest;
  Lanes total = zero();
  for (int64_t t = 0; t < tokens; t += 16) {
    const Lanes weight = exp(load(p + t) - broadcast(m));
    store(weight, p + t);
    total = total + weight;
  }
  queries.m[i] = m;
  queries.alpha[i] = first_lane(exp(broadcast(before - m)));
  queries.l[i] = empty ? sum_of_lanes(total) : __builtin_fmaf(queries.l[i], queries.alpha[i], sum_of_lanes(total));
}

HWY_INLINE void scale_row(float* x, float scale, int64_t count) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) store(load(x + i) * broadcast(scale), x + i);
  for (; i < count; ++i) x[i] *= scale;
}

// Queries [first, first + count) over the first `tokens` tokens of one page; `empty`: nothing has been folded yet.
template <class Type>
void fold_page(Queries& queries, int first, int count, const typename Type::Element* keys,
               const typename Type::Element* values, int64_t head_dim, float scale, int64_t tokens, bool empty) {
  const int64_t width = (tokens + 15) / 16 * 16, whole = head_dim / 16 * 16;
  float *const *p = queries.p + first, *const *o = queries.o + first;
  for (int i = 0; i < count; ++i) std::fill_n(p[i], width, 0.0f);
  multiply_add<Type>(count, queries.q + first, head_dim, keys, kPageTokens, width, p);
  for (int i = 0; i < count; ++i) {
    weigh_tokens(queries, first + i, scale, tokens, empty);
    if (empty) {
      std::fill_n(o[i], head_dim, 0.0f);
    } else if (queries.alpha[first + i] != 1.0f) {
      scale_row(o[i], queries.alpha[first + i], head_dim);
    }
  }
  multiply_add<Type>(count, p, tokens, values, head_dim, whole, o);
  for (int64_t d = whole; d < head_dim; ++d) {  // head_dim is no multiple of 16
    for (int i = 0; i < count; ++i) {
      for (int64_t t = 0; t < tokens; ++t)
        o[i][d] = __builtin_fmaf(p[i][t], Type::scalar(values[t * head_dim + d]), o[i][d]);
    }
  }
}

HWY_INLINE void divide(float* o, float l, int64_t count) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) store(load(o + i) / broadcast(l), o + i);
  for (; i < count; ++i) o[i] /= l;
}

template <class Type>
void attention(const AttentionWork& work) {
  using Element = typename Type::Element;
  const int64_t head_dim = work.q.head_dim;
  const int heads = work.last_head - work.first_head;
  const auto count = static_cast<int>(work.last_row - work.first_row) * heads;
  Queries queries;
  for (int i = 0; i < count; ++i) {
    const int64_t row = work.span->first_row + work.first_row + i / heads;
    const int head = work.first_head + i % heads;
    queries.q[i] = work.q.head(row, head);
    queries.o[i] = work.out.row(row) + head * head_dim;
    queries.p[i] = queries.weights[i];
  }

  const int64_t first_position = work.span->start + work.first_row,
                last_position = work.span->start + work.last_row - 1;
  for (int64_t page = 0; page * kPageTokens <= last_position; ++page) {
    const int32_t id = work.span->pages[static_cast<size_t>(page)];
    const auto* keys = reinterpret_cast<const Element*>(work.kv->keys(id, work.kv_head));
    const auto* values = reinterpret_cast<const Element*>(work.kv->values(id, work.kv_head));
    // Rows before the page see nothing of it; the others see up to themselves. Queries that see as much go together.
    const int64_t skipped = page * kPageTokens - first_position;
    for (int i = skipped > 0 ? static_cast<int>(skipped) * heads : 0; i < count;) {
      const auto visible = [&](int query) {
        const int64_t tokens = first_position + query / heads + 1 - page * kPageTokens;
        return tokens < kPageTokens ? tokens : int64_t{kPageTokens};
      };
      const int64_t tokens = visible(i);
      int together = 1;
      while (together < kMaxQueries && i + together < count && visible(i + together) == tokens) ++together;
      fold_page<Type>(queries, i, together, keys, values, head_dim, work.scale, tokens, page == 0);
      i += together;
    }
  }
  for (int i = 0; i < count; ++i) divide(queries.o[i], queries.l[i], head_dim);
}

}  // namespace
}  // namespace coprime::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // COPRIME_SIMD

#if HWY_ONCE
namespace coprime {

std::span<const KernelRow<AttentionFn>> attention_kernels() {
  static constexpr KernelRow<AttentionFn> kTable[] = {
      {Isa::kAvx512, DType::kF32, "attention avx512 F32", OrderClass::kLanes, N_AVX3::attention<N_AVX3::F32>},
      {Isa::kAvx512, DType::kF16, "attention avx512 F16", OrderClass::kLanes, N_AVX3::attention<N_AVX3::F16>},
      {Isa::kAvx512, DType::kBF16, "attention avx512 BF16", OrderClass::kLanes, N_AVX3::attention<N_AVX3::BF16>},
      {Isa::kAvx2, DType::kF32, "attention avx2 F32", OrderClass::kLanes, N_AVX2::attention<N_AVX2::F32>},
      {Isa::kAvx2, DType::kF16, "attention avx2 F16", OrderClass::kLanes, N_AVX2::attention<N_AVX2::F16>},
      {Isa::kAvx2, DType::kBF16, "attention avx2 BF16", OrderClass::kLanes, N_AVX2::attention<N_AVX2::BF16>},
  };
  return kTable;
}

}  // namespace coprime
#endif  // HWY_ONCE
