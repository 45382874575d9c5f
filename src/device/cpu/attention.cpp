// Causal attention over pages of 64 tokens. Keys lie [d][64], so that lanes are tokens; values [64][d], so that lanes
// are elements. Pages are folded in token order into partials (m, l, o) of kPartialPages pages, each begun empty at an
// absolute position, and partials are merged in token order: so that the tokens of one query can be shared out without
// a change of bits. Nothing depends on which queries are taken together (OrderClass::kLanes, the same bits on every
// target).
//
// For each query and page: s[t] = scale * (sum over d ascending, fused); the running maximum; p = exp(s - m); l =
// fma(l, alpha, sum of p: 16 lanes, then pairwise); o = o * alpha, then fused with p[t] v[t], t ascending over the
// tokens below the query's limit. Where pages have scales, a key's is multiplied with s[t], and a value's with p[t]
// once that is in l. (m, l, o) merged with the next (m', l', o'): M = max(m, m'), a = exp(m - M), b = exp(m' - M); l =
// fma(l', b, l * a), o = fma(o', b, o * a).
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
// From so many queries on, a page of narrow elements is widened once rather than by every few of them.
constexpr int kWidenQueries = 12;

// The queries of one work item, and the partial that they are at.
struct Queries {
  const float* q[kAttentionQueries];
  float* o[kAttentionQueries];
  float* p[kAttentionQueries];    // rows of `weights`
  int tokens[kAttentionQueries];  // of the current page, that each sees
  alignas(64) float m[kAttentionQueries], l[kAttentionQueries];
  alignas(64) float highest[kAttentionQueries], alpha[kAttentionQueries];  // of the current page
  alignas(64) float weights[kAttentionQueries][kPageTokens];               // scores, then weights, of the current page
};

// One head's page, in a type that the arithmetic reads.
template <class Type>
struct Page {
  const typename Type::Element *keys, *values;
  const float *key_scales, *value_scales;  // null: all are 1
  float unit;                              // what elements are to be multiplied with beside their scales
  ptrdiff_t to_values, to_next;            // bytes from keys to values, and from there to the page that comes next
};

// The sums of query i become scores: up to its tokens' count times the scales, minus infinity in the other lanes.
template <class Type>
HWY_INLINE void finish_scores(Queries& queries, int i, const Page<Type>& page, float scale) {
  float* p = queries.p[i];
  Lanes highest = broadcast(kMinusInfinity);
  for (int64_t t = 0; t < queries.tokens[i]; t += 16) {
    Lanes s = load(p + t);
    if (page.key_scales != nullptr) s = s * (load(page.key_scales + t) * broadcast(page.unit));
    s = s * broadcast(scale);
    if (queries.tokens[i] - t < 16) s = first_lanes(queries.tokens[i] - t, s, broadcast(kMinusInfinity));
    store(s, p + t);
    highest = max(highest, s);
  }
  queries.highest[i] = max_of_lanes(highest);
}

template <class Type>
HWY_INLINE void exp_scores(Queries& queries, int i, const Page<Type>& page, bool empty) {
  float* p = queries.p[i];
  const Lanes m = broadcast(queries.m[i]);
  Lanes total = zero();
  for (int64_t t = 0; t < queries.tokens[i]; t += 16) {
    Lanes weight = exp(load(p + t) - m);
    total = total + weight;
    if (page.value_scales != nullptr) weight = weight * (load(page.value_scales + t) * broadcast(page.unit));
    store(weight, p + t);
  }
  const float sum = sum_of_lanes(total);
  queries.l[i] = empty ? sum : __builtin_fmaf(queries.l[i], queries.alpha[i], sum);
}

// The sums of queries [first, count) over a page become weights; m, l and alpha follow. `empty`: the partial begins
// here. One step for all queries after the other, so that no query waits for its own last one.
template <class Type>
void weigh_tokens(Queries& queries, int first, int count, const Page<Type>& page, float scale, bool empty) {
  for (int i = first; i < count; ++i) finish_scores(queries, i, page, scale);
  if (empty) {
    for (int i = first; i < count; ++i) queries.m[i] = kMinusInfinity;
  }
  for (int i = first / 16 * 16; i < count; i += 16) {  // those before `first` are not looked at again
    const Lanes before = load(queries.m + i), after = max(before, load(queries.highest + i));
    store(exp(before - after), queries.alpha + i);
    store(after, queries.m + i);
  }
  for (int i = first; i < count; ++i) exp_scores(queries, i, page, empty);
}

HWY_INLINE void scale_row(float* x, float scale, int64_t count) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) store(load(x + i) * broadcast(scale), x + i);
  for (; i < count; ++i) x[i] *= scale;
}

// Queries that go together: they see as many tokens.
struct Group {
  int first, count;
};

// Queries [first, count) over what they see of one page. Keys, then values, are read by all while they are near.
template <class Type>
void fold_page(Queries& queries, int first, int count, const Page<Type>& page, int64_t head_dim, float scale,
               bool empty) {
  Group groups[kAttentionQueries];
  int num_groups = 0;
  // Few queries wait for memory. It comes fastest where it is read in the order in which it lies, as one query does;
  // narrow elements cost more to convert than that gains, and there what comes next is asked for.
  constexpr bool kNarrow = sizeof(typename Type::Element) < sizeof(float);
  const bool few = count - first < kWidenQueries;
  for (int i = first; i < count; i += groups[num_groups++].count) {
    const int most = few && !kNarrow && i == first ? 1 : kMaxQueries;
    int together = 1;
    while (together < most && i + together < count && queries.tokens[i + together] == queries.tokens[i]) ++together;
    groups[num_groups] = {i, together};
  }
  for (int g = 0; g < num_groups; ++g) {
    const Group group = groups[g];
    const int64_t width = (queries.tokens[group.first] + 15) / 16 * 16;
    for (int i = 0; i < group.count; ++i) std::fill_n(queries.p[group.first + i], width, 0.0f);
    multiply_add<Type>(group.count, queries.q + group.first, head_dim, page.keys, kPageTokens, width,
                       queries.p + group.first, kNarrow && few && g + 1 == num_groups ? page.to_values : 0);
  }
  weigh_tokens(queries, first, count, page, scale, empty);
  const int64_t whole = head_dim / 16 * 16;
  for (int g = 0; g < num_groups; ++g) {
    const Group group = groups[g];
    const int64_t tokens = queries.tokens[group.first];
    float *const *p = queries.p + group.first, *const *o = queries.o + group.first;
    for (int i = 0; i < group.count; ++i) {
      if (empty) {
        std::fill_n(o[i], head_dim, 0.0f);
      } else if (queries.alpha[group.first + i] != 1.0f) {
        scale_row(o[i], queries.alpha[group.first + i], head_dim);
      }
    }
    multiply_add<Type>(group.count, p, tokens, page.values, head_dim, whole, o,
                       kNarrow && few && g + 1 == num_groups ? page.to_next : 0);
    for (int64_t d = whole; d < head_dim; ++d) {  // head_dim is no multiple of 16
      for (int i = 0; i < group.count; ++i) {
        for (int64_t t = 0; t < tokens; ++t)
          o[i][d] = __builtin_fmaf(p[i][t], Type::scalar(page.values[t * head_dim + d]), o[i][d]);
      }
    }
  }
}

HWY_INLINE void divide(float* o, float l, int64_t count) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) store(load(o + i) / broadcast(l), o + i);
  for (; i < count; ++i) o[i] /= l;
}

// (m, l, o) becomes itself merged with the partial that follows it.
void merge_next(float& m, float& l, float* o, float next_m, float next_l, const float* next_o, int64_t count) {
  const float highest = m > next_m ? m : next_m;
  const float a = first_lane(exp(broadcast(m - highest))), b = first_lane(exp(broadcast(next_m - highest)));
  m = highest;
  l = __builtin_fmaf(next_l, b, l * a);
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) store(fma(load(next_o + i), broadcast(b), load(o + i) * broadcast(a)), o + i);
  for (; i < count; ++i) o[i] = __builtin_fmaf(next_o[i], b, o[i] * a);
}

template <class Type>
void widen(const typename Type::Element* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; i += 16) store(Type::load(x + i), y + i);
}

// One partial of the work's `count` queries: pages [first_page, last_page), as far as each query sees.
template <class Type>
void fold_partial(const AttentionWork& work, Queries& queries, int count, int64_t first_page, int64_t last_page) {
  using Element = typename Type::Element;
  const int64_t head_dim = work.q.head_dim, elements = work.kv->elements();
  const int heads = work.last_head - work.first_head;
  const int64_t first_position = work.span->start + work.first_row;
  for (int64_t page = first_page; page < last_page; ++page) {
    // Rows before the page see nothing of it; the others see up to themselves.
    const int64_t skipped = page * kPageTokens - first_position;
    const int first = skipped > 0 ? static_cast<int>(skipped) * heads : 0;
    for (int i = first; i < count; ++i) {
      const int64_t tokens = first_position + i / heads + 1 - page * kPageTokens;
      queries.tokens[i] = static_cast<int>(std::min<int64_t>(tokens, kPageTokens));
    }
    std::byte* const keys = work.kv->keys(work.span->pages[static_cast<size_t>(page)], work.kv_head);
    std::byte* const values = keys + work.kv->half_bytes();
    const int64_t next = page + 1 < last_page ? page + 1 : page;
    const Page<Type> stored{reinterpret_cast<const Element*>(keys),
                            reinterpret_cast<const Element*>(values),
                            work.kv->scales(keys),
                            work.kv->scales(values),
                            Type::kUnit,
                            work.kv->half_bytes(),
                            work.kv->keys(work.span->pages[static_cast<size_t>(next)], work.kv_head) - values};
    if constexpr (sizeof(Element) < sizeof(float)) {
      if (count - first >= kWidenQueries) {
        float *const wide_keys = work.scratch, *const wide_values = wide_keys + elements;
        widen<Type>(stored.keys, elements, wide_keys);
        widen<Type>(stored.values, elements, wide_values);
        const Page<F32> wide{wide_keys, wide_values, stored.key_scales, stored.value_scales, stored.unit, 0, 0};
        fold_page(queries, first, count, wide, head_dim, work.scale, page == first_page);
        continue;
      }
    }
    fold_page(queries, first, count, stored, head_dim, work.scale, page == first_page);
  }
}

template <class Type>
void attend(const AttentionWork& work) {
  const int64_t head_dim = work.q.head_dim;
  const int heads = work.last_head - work.first_head;
  const auto count = static_cast<int>(work.last_row - work.first_row) * heads;
  const int64_t last_page = (work.span->start + work.last_row - 1) / kPageTokens + 1;
  Queries queries;
  std::ranges::fill(queries.m, 0.0f);  // lanes without a query go along
  std::ranges::fill(queries.highest, 0.0f);
  float* out[kAttentionQueries];
  float m[kAttentionQueries], l[kAttentionQueries];  // of the partials so far
  for (int i = 0; i < count; ++i) {
    const int64_t row = work.span->first_row + work.first_row + i / heads;
    const int head = work.first_head + i % heads;
    queries.q[i] = work.q.head(row, head);
    queries.p[i] = queries.weights[i];
    out[i] = work.out.row(row) + head * head_dim;
  }
  for (int64_t partial = work.first_partial; partial < work.last_partial; ++partial) {
    const int64_t first_page = partial * kPartialPages,
                  skipped = first_page * kPageTokens - work.span->start - work.first_row;
    const int first = skipped > 0 ? static_cast<int>(skipped) * heads : 0;  // those before it see nothing of it
    for (int i = 0; i < count; ++i) {
      queries.o[i] = work.partials != nullptr ? work.partials + work.partial_at(i, partial)
                     : partial == 0           ? out[i]
                                              : work.scratch + (2 * int64_t{kPageTokens} + i) * head_dim;
    }
    fold_partial<Type>(work, queries, count, first_page, std::min(first_page + kPartialPages, last_page));
    for (int i = first; i < count; ++i) {
      if (work.partials != nullptr) {
        queries.o[i][head_dim] = queries.m[i];
        queries.o[i][head_dim + 1] = queries.l[i];
      } else if (partial == 0) {
        m[i] = queries.m[i];
        l[i] = queries.l[i];
      } else {
        merge_next(m[i], l[i], out[i], queries.m[i], queries.l[i], queries.o[i], head_dim);
      }
    }
  }
  for (int i = 0; i < count && work.partials == nullptr; ++i) divide(out[i], l[i], head_dim);
}

void merge(const float* partials, int64_t count, int64_t head_dim, float* out) {
  const int64_t stride = partial_floats(head_dim);
  float m = partials[head_dim], l = partials[head_dim + 1];
  std::copy_n(partials, head_dim, out);
  for (int64_t i = 1; i < count; ++i) {
    const float* next = partials + i * stride;
    merge_next(m, l, out, next[head_dim], next[head_dim + 1], next, head_dim);
  }
  divide(out, l, head_dim);
}

template <class Type>
constexpr AttentionKernels kAttention{attend<Type>, merge};

}  // namespace
}  // namespace coprime::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // COPRIME_SIMD

#if HWY_ONCE
namespace coprime {

std::span<const KernelRow<AttentionFn>> attention_kernels() {
  constexpr OrderClass kOrder = OrderClass::kLanes;
  static constexpr KernelRow<AttentionFn> kTable[] = {
      {Isa::kAvx512, DType::kF32, "attention avx512 F32", kOrder, &N_AVX3::kAttention<N_AVX3::F32>},
      {Isa::kAvx512, DType::kF16, "attention avx512 F16", kOrder, &N_AVX3::kAttention<N_AVX3::F16>},
      {Isa::kAvx512, DType::kBF16, "attention avx512 BF16", kOrder, &N_AVX3::kAttention<N_AVX3::BF16>},
      {Isa::kAvx512, DType::kF8E4M3, "attention avx512 F8_E4M3", kOrder, &N_AVX3::kAttention<N_AVX3::E4M3>},
      {Isa::kAvx2, DType::kF32, "attention avx2 F32", kOrder, &N_AVX2::kAttention<N_AVX2::F32>},
      {Isa::kAvx2, DType::kF16, "attention avx2 F16", kOrder, &N_AVX2::kAttention<N_AVX2::F16>},
      {Isa::kAvx2, DType::kBF16, "attention avx2 BF16", kOrder, &N_AVX2::kAttention<N_AVX2::BF16>},
      {Isa::kAvx2, DType::kF8E4M3, "attention avx2 F8_E4M3", kOrder, &N_AVX2::kAttention<N_AVX2::E4M3>},
  };
  return kTable;
}

}  // namespace coprime
#endif  // HWY_ONCE
