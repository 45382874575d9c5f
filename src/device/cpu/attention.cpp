// Causal attention over pages of 64 tokens. Keys lie [d][64], so that lanes are tokens; values [64][d], so that lanes
// are elements. For each query and page, in token order: s[t] = scale * (sum over d ascending, fused); the running
// maximum; p = exp(s - m); l = fma(l, alpha, sum of p: 16 lanes, then pairwise); o = o * alpha, then fused with p[t]
// v[t], t ascending over the tokens below the query's limit. Nothing depends on which queries are taken together
// (OrderClass::kLanes, the same bits on every target).
#include "device/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/attention.cpp"
#include "hwy/foreach_target.h"

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
  float m[kAttentionQueries], l[kAttentionQueries], alpha[kAttentionQueries];
  alignas(64) float p[kAttentionQueries][kPageTokens];  // scores, then weights, of the current page
};

template <class Type, int Q, int T>
HWY_INLINE void score_tokens(Queries& queries, int first, const typename Type::Element* keys, int64_t head_dim,
                             float scale, int64_t token) {
  Lanes sum[Q][T];
  COPRIME_UNROLL for (int q = 0; q < Q; ++q) { COPRIME_UNROLL for (int t = 0; t < T; ++t) sum[q][t] = zero(); }
  accumulate<Type>(sum, queries.q + first, keys + token, kPageTokens, head_dim);
  COPRIME_UNROLL for (int q = 0; q < Q; ++q) {
    COPRIME_UNROLL for (int t = 0; t < T; ++t)
        store(sum[q][t] * broadcast(scale), queries.p[first + q] + token + 16 * t);
  }
}

template <class Type, int Q, int T>
HWY_INLINE void weigh_values(const Queries& queries, int first, const typename Type::Element* values, int64_t head_dim,
                             int64_t tokens, bool empty, int64_t element) {
  Lanes sum[Q][T];
  const float* p[Q];
  COPRIME_UNROLL for (int q = 0; q < Q; ++q) {
    p[q] = queries.p[first + q];
    const Lanes alpha = broadcast(queries.alpha[first + q]);
    COPRIME_UNROLL for (int t = 0; t < T; ++t) {
      sum[q][t] = empty ? zero() : load(queries.o[first + q] + element + 16 * t) * alpha;
    }
  }
  accumulate<Type>(sum, p, values + element, head_dim, tokens);
  COPRIME_UNROLL for (int q = 0; q < Q; ++q) {
    COPRIME_UNROLL for (int t = 0; t < T; ++t) store(sum[q][t], queries.o[first + q] + element + 16 * t);
  }
}

// Q queries over the first `tokens` tokens of one page; `empty`: nothing has been folded yet.
template <class Type, int Q>
HWY_NOINLINE void fold_page(Queries& queries, int first, const typename Type::Element* keys,
                            const typename Type::Element* values, int64_t head_dim, float scale, int64_t tokens,
                            bool empty) {
  constexpr int kWidth = panel_width(Q);
  int64_t token = 0;
  for (; token + 16 * (kWidth - 1) < tokens; token += 16 * kWidth) {
    score_tokens<Type, Q, kWidth>(queries, first, keys, head_dim, scale, token);
  }
  for (; token < tokens; token += 16) score_tokens<Type, Q, 1>(queries, first, keys, head_dim, scale, token);

  for (int q = first; q < first + Q; ++q) {
    float* p = queries.p[q];
    const int64_t rows = (tokens + 15) / 16;
    Lanes highest = broadcast(kMinusInfinity);
    for (int64_t i = 0; i < rows; ++i) {
      const Lanes s = first_lanes(tokens - 16 * i, load(p + 16 * i), broadcast(kMinusInfinity));
      store(s, p + 16 * i);
      highest = max(highest, s);
    }
    const float page_highest = max_of_lanes(highest), before = empty ? kMinusInfinity : queries.m[q];
    const Lanes m = broadcast(before > page_highest ? before : page_highest);
    Lanes total = zero();
    for (int64_t i = 0; i < rows; ++i) {
      const Lanes weight = exp(load(p + 16 * i) - m);
      store(weight, p + 16 * i);
      total = total + weight;
    }
    alignas(64) float alpha[16], now[16];
    store(exp(broadcast(before) - m), alpha);
    store(m, now);
    queries.m[q] = now[0];
    queries.alpha[q] = alpha[0];
    queries.l[q] = empty ? sum_of_lanes(total) : __builtin_fmaf(queries.l[q], alpha[0], sum_of_lanes(total));
  }

  int64_t element = 0;
  for (; element + 16 * kWidth <= head_dim; element += 16 * kWidth) {
    weigh_values<Type, Q, kWidth>(queries, first, values, head_dim, tokens, empty, element);
  }
  for (; element + 16 <= head_dim; element += 16) {
    weigh_values<Type, Q, 1>(queries, first, values, head_dim, tokens, empty, element);
  }
  for (; element < head_dim; ++element) {  // head_dim is no multiple of 16
    for (int q = first; q < first + Q; ++q) {
      float sum = empty ? 0.0f : queries.o[q][element] * queries.alpha[q];
      for (int64_t t = 0; t < tokens; ++t) {
        sum = __builtin_fmaf(queries.p[q][t], Type::scalar(values[t * head_dim + element]), sum);
      }
      queries.o[q][element] = sum;
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
  using FoldFn = void (*)(Queries&, int, const Element*, const Element*, int64_t, float, int64_t, bool);
  constexpr FoldFn kFold[] = {fold_page<Type, 1>, fold_page<Type, 2>, fold_page<Type, 3>,
                              fold_page<Type, 4>, fold_page<Type, 5>, fold_page<Type, kMaxQueries>};
  const int64_t head_dim = work.q.head_dim;
  const int heads = work.last_head - work.first_head;
  const auto count = static_cast<int>(work.last_row - work.first_row) * heads;
  Queries queries;
  for (int i = 0; i < count; ++i) {
    const int64_t row = work.span->first_row + work.first_row + i / heads;
    const int head = work.first_head + i % heads;
    queries.q[i] = work.q.head(row, head);
    queries.o[i] = work.out.row(row) + head * head_dim;
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
      kFold[together - 1](queries, i, keys, values, head_dim, work.scale, tokens, page == 0);
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
