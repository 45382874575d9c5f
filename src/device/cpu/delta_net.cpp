// Gated DeltaNet: the short convolution, and the gated delta rule of one value head, row by row and in chunks of 64
// rows. Lanes are channels, and elements of the value. The state is [key_dim][value_dim].
//
// In a chunk, with rows i and j, G the running sum of g, D_ij = e^(G_i - G_j) for j <= i, q and k scaled:
//   A_ij = beta_i (k_i k_j) D_ij for j < i          V' = (I + A)^-1 (beta_i (v_i - e^(G_i) S^T k_i))
//   out_i = e^(G_i) S^T q_i + sum over j <= i of (q_i k_j) D_ij V'_j
//   S <- e^(G_last) S + sum over j of e^(G_last - G_j) k_j V'_j^T
// which is the recurrence in real arithmetic. Sums run in one order, the same on every target.
#include "device/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/delta_net.cpp"
#include "hwy/foreach_target.h"

#include <algorithm>
#include <type_traits>

#include "device/cpu/kernels.h"
#include "device/cpu/lanes16-inl.h"
#include "device/cpu/math-inl.h"
#include "device/cpu/panel-inl.h"
#include "device/shape_checks.h"

#ifndef COPRIME_DEVICE_CPU_DELTA_SCRATCH_
#define COPRIME_DEVICE_CPU_DELTA_SCRATCH_
namespace coprime {

// A head's scratch memory: one chunk's rows. Widths are rounded up to 16 lanes, the padding stays zero.
struct DeltaScratch {
  int64_t key_width, value_width;
  float *q, *k;                   // [chunk][key_width], scaled
  float *keys, *weighted_keys;    // [key_width][chunk]: transposed, and times e^(G_last - G_j)
  float *delta, *recalled, *out;  // [chunk][value_width]: V', S^T k, S^T q
  float *strict, *lower;          // [chunk][chunk]: -A, and (q k) D
  float* state;                   // [key_width][value_width]
  float *beta, *g, *decay;        // [chunk]: decay is e^g, or e^G in chunks
};

inline int64_t round_to_lanes(int64_t count) { return (count + 15) / 16 * 16; }

// Lays it out from `memory`; returns the floats it takes.
inline int64_t lay_out(const DeltaNetShape& shape, float* memory, DeltaScratch& scratch) {
  int64_t used = 0;
  const auto take = [&](int64_t count) {
    float* part = memory + used;
    used += count;
    return part;
  };
  const int64_t dk = scratch.key_width = round_to_lanes(shape.key_dim),
                dv = scratch.value_width = round_to_lanes(shape.value_dim);
  scratch.q = take(kDeltaChunk * dk), scratch.k = take(kDeltaChunk * dk);
  scratch.keys = take(dk * kDeltaChunk), scratch.weighted_keys = take(dk * kDeltaChunk);
  scratch.delta = take(kDeltaChunk * dv), scratch.recalled = take(kDeltaChunk * dv),
  scratch.out = take(kDeltaChunk * dv);
  scratch.strict = take(kDeltaChunk * kDeltaChunk), scratch.lower = take(kDeltaChunk * kDeltaChunk);
  scratch.state = take(dk * dv);
  scratch.beta = take(kDeltaChunk), scratch.g = take(kDeltaChunk), scratch.decay = take(kDeltaChunk);
  return used;
}

}  // namespace coprime
#endif

#if COPRIME_SIMD
HWY_BEFORE_NAMESPACE();
namespace coprime::HWY_NAMESPACE {
namespace {

// ---- what both forms share

HWY_INLINE float inverse_norm(const float* x, int64_t count) {
  return 1.0f / __builtin_sqrtf(sum_of_squares(x, count) + 1e-6f);
}

HWY_INLINE void scale_row(const float* x, int64_t count, float scale, float* y) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) store(load(x + i) * broadcast(scale), y + i);
  for (; i < count; ++i) y[i] = x[i] * scale;
}

// q, k, beta and g of rows [row, row + count) of the span, into scratch. Padding columns of q and k stay as they are.
HWY_NOINLINE void prepare_rows(const DeltaRuleWork& work, int64_t row, int64_t count, DeltaScratch& scratch) {
  const DeltaNetShape& shape = work.shape;
  const int key_head = work.head / (shape.value_heads / shape.key_heads);
  const float q_size = 1.0f / __builtin_sqrtf(static_cast<float>(shape.key_dim));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = work.span->first_row + row + i;
    const float* q = work.qkv.row(at) + int64_t{key_head} * shape.key_dim;
    const float* k = q + int64_t{shape.key_heads} * shape.key_dim;
    scale_row(q, shape.key_dim, inverse_norm(q, shape.key_dim) * q_size, scratch.q + i * scratch.key_width);
    scale_row(k, shape.key_dim, inverse_norm(k, shape.key_dim), scratch.k + i * scratch.key_width);
    scratch.beta[i] = work.b.row(at)[work.head];
    scratch.g[i] = work.a.row(at)[work.head] + work.dt_bias;
  }
  sigmoid_row(scratch.beta, scratch.beta, count);
  softplus_row(scratch.g, scratch.g, count);
  float rate;
  exp_row(&work.a_log, &rate, 1);
  scale_row(scratch.g, count, -rate, scratch.g);
}

HWY_INLINE const float* value_row(const DeltaRuleWork& work, int64_t row) {
  const DeltaNetShape& shape = work.shape;
  return work.qkv.row(work.span->first_row + row) + 2 * int64_t{shape.key_heads} * shape.key_dim +
         int64_t{work.head} * shape.value_dim;
}

HWY_INLINE float* out_row(const DeltaRuleWork& work, int64_t row) {
  return work.out.row(work.span->first_row + row) + int64_t{work.head} * work.shape.value_dim;
}

// ---- row by row

// 16 T elements of the value: S *= decay, recalled = S^T k; S += k delta^T, out = S^T q.
template <int T>
HWY_INLINE void step_lanes(const float* state_in, float* state_out, int64_t key_dim, int64_t value_dim, const float* q,
                           const float* k, const float* v, float beta, float decay, float* out) {
  const Lanes fade = broadcast(decay);
  Lanes sum[T], delta[T];
  COPRIME_UNROLL for (int t = 0; t < T; ++t) sum[t] = zero();
  for (int64_t i = 0; i < key_dim; ++i) {
    const Lanes key = broadcast(k[i]);
    COPRIME_UNROLL for (int t = 0; t < T; ++t) add_product(sum[t], key, load(state_in + i * value_dim + 16 * t) * fade);
  }
  COPRIME_UNROLL for (int t = 0; t < T; ++t) {
    delta[t] = broadcast(beta) * (load(v + 16 * t) - sum[t]);
    sum[t] = zero();
  }
  for (int64_t i = 0; i < key_dim; ++i) {
    const Lanes key = broadcast(k[i]), query = broadcast(q[i]);
    COPRIME_UNROLL for (int t = 0; t < T; ++t) {
      const Lanes cell = fma(key, delta[t], load(state_in + i * value_dim + 16 * t) * fade);
      store(cell, state_out + i * value_dim + 16 * t);
      add_product(sum[t], query, cell);
    }
  }
  COPRIME_UNROLL for (int t = 0; t < T; ++t) store(sum[t], out + 16 * t);
}

// One element: for value_dim that is no multiple of 16.
void step_element(const float* state_in, float* state_out, int64_t key_dim, int64_t value_dim, const float* q,
                  const float* k, float v, float beta, float decay, float* out) {
  float sum = 0;
  for (int64_t i = 0; i < key_dim; ++i) sum = __builtin_fmaf(k[i], state_in[i * value_dim] * decay, sum);
  const float delta = beta * (v - sum);
  sum = 0;
  for (int64_t i = 0; i < key_dim; ++i) {
    const float cell = __builtin_fmaf(k[i], delta, state_in[i * value_dim] * decay);
    state_out[i * value_dim] = cell;
    sum = __builtin_fmaf(q[i], cell, sum);
  }
  *out = sum;
}

void delta_rule_recurrent(const DeltaRuleWork& work) {
  const int64_t dk = work.shape.key_dim, dv = work.shape.value_dim;
  DeltaScratch scratch;
  lay_out(work.shape, work.scratch, scratch);
  const float* state = work.state_in;
  if (state == nullptr) {
    std::fill_n(work.state_out, dk * dv, 0.0f);
    state = work.state_out;
  } else if (work.span->num_rows == 0 && state != work.state_out) {
    std::copy_n(state, dk * dv, work.state_out);
  }
  for (int64_t first = 0; first < work.span->num_rows; first += kDeltaChunk) {
    const int64_t count = std::min<int64_t>(kDeltaChunk, work.span->num_rows - first);
    prepare_rows(work, first, count, scratch);
    exp_row(scratch.g, scratch.decay, count);
    for (int64_t i = 0; i < count; ++i) {
      const float *q = scratch.q + i * scratch.key_width, *k = scratch.k + i * scratch.key_width;
      const float* v = value_row(work, first + i);
      float* out = out_row(work, first + i);
      const float beta = scratch.beta[i], decay = scratch.decay[i];
      int64_t j = 0;
      for (; j + 64 <= dv; j += 64)
        step_lanes<4>(state + j, work.state_out + j, dk, dv, q, k, v + j, beta, decay, out + j);
      for (; j + 16 <= dv; j += 16)
        step_lanes<1>(state + j, work.state_out + j, dk, dv, q, k, v + j, beta, decay, out + j);
      for (; j < dv; ++j) step_element(state + j, work.state_out + j, dk, dv, q, k, v[j], beta, decay, out + j);
      state = work.state_out;
    }
    work.done.add();
  }
}

// ---- in chunks

// out[r][c] += sum over k < count of x[r][k] panel[k][c], for c < width, a multiple of 16.
void multiply_add(int64_t rows, const float* x, int64_t x_stride, int64_t count, const float* panel,
                  int64_t panel_stride, int64_t width, float* out, int64_t out_stride) {
  for (int64_t row = 0; row < rows; row += kMaxQueries) {
    const int64_t together = std::min<int64_t>(kMaxQueries, rows - row);
    const float* x_rows[kMaxQueries];
    float* out_rows[kMaxQueries];
    for (int64_t i = 0; i < together; ++i) {
      x_rows[i] = x + (row + i) * x_stride;
      out_rows[i] = out + (row + i) * out_stride;
    }
    HWY_NAMESPACE::multiply_add<F32>(together, x_rows, count, panel, panel_stride, width, out_rows);
  }
}

// (I + A) V' = delta, in place: rows in blocks, the part left of a block as a product, the block itself row by row.
void solve(int64_t rows, const float* minus_a, int64_t width, float* delta) {
  constexpr int64_t kBlock = 8;
  for (int64_t block = 0; block < rows; block += kBlock) {
    const int64_t end = std::min(rows, block + kBlock);
    multiply_add(end - block, minus_a + block * kDeltaChunk, kDeltaChunk, block, delta, width, width,
                 delta + block * width, width);
    for (int64_t i = block + 1; i < end; ++i) {
      multiply_add(1, minus_a + i * kDeltaChunk + block, kDeltaChunk, i - block, delta + block * width, width, width,
                   delta + i * width, width);
    }
  }
}

void chunk(const DeltaRuleWork& work, int64_t first, int64_t count, DeltaScratch& s) {
  constexpr int64_t C = kDeltaChunk;
  const int64_t dk = work.shape.key_dim, dv = work.shape.value_dim, kw = s.key_width, vw = s.value_width;
  prepare_rows(work, first, count, s);
  float total = 0;
  for (int64_t i = 0; i < count; ++i) s.g[i] = total += s.g[i];  // G from here on
  exp_row(s.g, s.decay, count);
  alignas(64) float to_last[C];  // e^(G_last - G_j)
  for (int64_t i = 0; i < count; ++i) to_last[i] = total - s.g[i];
  exp_row(to_last, to_last, count);

  for (int64_t d = 0; d < dk; ++d) {
    float *keys = s.keys + d * C, *weighted = s.weighted_keys + d * C;
    for (int64_t i = 0; i < count; ++i) {
      keys[i] = s.k[i * kw + d];
      weighted[i] = keys[i] * to_last[i];
    }
    std::fill(keys + count, keys + C, 0.0f);
  }

  std::fill_n(s.strict, count * C, 0.0f);
  std::fill_n(s.lower, count * C, 0.0f);
  for (int64_t i = 0; i < count; i += kMaxQueries) {  // columns up to the diagonal
    const int64_t rows = std::min<int64_t>(kMaxQueries, count - i), width = round_to_lanes(i + rows);
    multiply_add(rows, s.k + i * kw, kw, dk, s.keys, C, width, s.strict + i * C, C);
    multiply_add(rows, s.q + i * kw, kw, dk, s.keys, C, width, s.lower + i * C, C);
  }
  for (int64_t i = 0; i < count; ++i) {
    float *strict = s.strict + i * C, *lower = s.lower + i * C;
    alignas(64) float fade[C];  // D
    for (int64_t j = 0; j <= i; ++j) fade[j] = s.g[i] - s.g[j];
    exp_row(fade, fade, i + 1);
    for (int64_t j = 0; j < i; ++j) strict[j] = -(s.beta[i] * (strict[j] * fade[j]));
    for (int64_t j = 0; j <= i; ++j) lower[j] *= fade[j];
    std::fill(strict + i, strict + C, 0.0f);
    std::fill(lower + i + 1, lower + C, 0.0f);
  }

  std::fill_n(s.recalled, count * vw, 0.0f);
  std::fill_n(s.out, count * vw, 0.0f);
  multiply_add(count, s.k, kw, dk, s.state, vw, vw, s.recalled, vw);
  multiply_add(count, s.q, kw, dk, s.state, vw, vw, s.out, vw);
  for (int64_t i = 0; i < count; ++i) {
    const float* v = value_row(work, first + i);
    const Lanes beta = broadcast(s.beta[i]), decay = broadcast(s.decay[i]);
    for (int64_t j = 0; j < vw; j += 16) {
      const Lanes value = j + 16 <= dv ? load(v + j) : load_first(v + j, dv - j);
      store(beta * fnma(decay, load(s.recalled + i * vw + j), value), s.delta + i * vw + j);
      store(decay * load(s.out + i * vw + j), s.out + i * vw + j);
    }
  }
  solve(count, s.strict, vw, s.delta);

  for (int64_t i = 0; i < count; i += kMaxQueries) {  // entries right of the diagonal are zero
    const int64_t rows = std::min<int64_t>(kMaxQueries, count - i);
    multiply_add(rows, s.lower + i * C, C, i + rows, s.delta, vw, vw, s.out + i * vw, vw);
  }
  for (int64_t i = 0; i < count; ++i) std::copy_n(s.out + i * vw, dv, out_row(work, first + i));

  const Lanes decay = broadcast(s.decay[count - 1]);
  for (int64_t i = 0; i < dk * vw; i += 16) store(load(s.state + i) * decay, s.state + i);
  multiply_add(dk, s.weighted_keys, C, count, s.delta, vw, vw, s.state, vw);
}

void delta_rule_chunked(const DeltaRuleWork& work) {
  const int64_t dk = work.shape.key_dim, dv = work.shape.value_dim;
  DeltaScratch scratch;
  lay_out(work.shape, work.scratch, scratch);
  std::fill_n(scratch.state, scratch.key_width * scratch.value_width, 0.0f);
  for (int64_t i = 0; i < dk && work.state_in != nullptr; ++i) {
    std::copy_n(work.state_in + i * dv, dv, scratch.state + i * scratch.value_width);
  }
  for (int64_t first = 0; first < work.span->num_rows; first += kDeltaChunk) {
    chunk(work, first, std::min<int64_t>(kDeltaChunk, work.span->num_rows - first), scratch);
    work.done.add();
  }
  for (int64_t i = 0; i < dk; ++i) std::copy_n(scratch.state + i * scratch.value_width, dv, work.state_out + i * dv);
}

// ---- the short convolution

// One row: inputs[i] is the row that tap i meets, weight[i] its weights. Taps is the count where the compiler may
// unroll, else 0.
template <int Taps>
HWY_INLINE void convolve_row(int taps, const float* const* inputs, const float (*weight)[kConvolutionChannels],
                             int64_t channels, float* out) {
  const int count = Taps > 0 ? Taps : taps;
  const auto at = [&](int64_t c, const auto& read) COPRIME_INLINE {
    Lanes sum = zero();
    COPRIME_UNROLL for (int i = 0; i < count; ++i) sum = fma(load(weight[i] + c), read(inputs[i] + c), sum);
    return sum;
  };
  int64_t c = 0;
  for (; c + 16 <= channels; c += 16) store(at(c, [](const float* x) COPRIME_INLINE { return load(x); }), out + c);
  if (const int64_t left = channels - c; left > 0) {
    store_first(at(c, [left](const float* x) COPRIME_INLINE { return load_first(x, left); }), out + c, left);
  }
  silu_row(out, out, channels);
}

void convolution(const ConvolutionWork& work) {
  const int taps = work.taps, past = taps - 1;
  const int64_t width = work.last - work.first, rows = work.span->num_rows;
  alignas(64) float weight[kMaxTaps][kConvolutionChannels],
      zeros[kConvolutionChannels];  // transposed: taps by channels
  int64_t c = 0;
  for (; taps == 4 && c + 16 <= width; c += 16) {
    Lanes transposed[4];
    load_transposed4(work.weight + (work.first + c) * 4, transposed);
    for (int i = 0; i < 4; ++i) store(transposed[i], weight[i] + c);
  }
  for (; c < width; ++c) {
    for (int i = 0; i < taps; ++i) weight[i][c] = work.weight[(work.first + c) * taps + i];
  }
  if (work.state_in == nullptr) std::fill_n(zeros, width, 0.0f);
  const auto input = [&](int64_t row) -> const float* {  // of the span; before it, the history
    if (row >= 0) return work.u.row(work.span->first_row + row) + work.first;
    return work.state_in != nullptr ? work.state_in + (row + past) * work.channels + work.first : zeros;
  };
  for (int64_t row = 0; row < rows; ++row) {
    const float* inputs[kMaxTaps];
    for (int i = 0; i < taps; ++i) inputs[i] = input(row - past + i);
    float* out = work.out.row(work.span->first_row + row) + work.first;
    if (taps == 4) {
      convolve_row<4>(taps, inputs, weight, width, out);
    } else {
      convolve_row<0>(taps, inputs, weight, width, out);
    }
  }
  for (int i = 0; i < past && work.state_out != nullptr;
       ++i) {  // oldest first: in place it reads ahead of what it writes
    std::copy_n(input(rows - past + i), width, work.state_out + i * work.channels + work.first);
  }
}

constexpr DeltaNetKernels kDeltaNetKernels = {delta_rule_recurrent, delta_rule_chunked, convolution};

}  // namespace
}  // namespace coprime::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // COPRIME_SIMD

#if HWY_ONCE
namespace coprime {

int64_t delta_rule_scratch(const DeltaNetShape& shape) {
  DeltaScratch scratch;
  return lay_out(shape, nullptr, scratch);
}

std::span<const KernelRow<DeltaNetFn>> delta_net_kernels() {
  static constexpr KernelRow<DeltaNetFn> kTable[] = {
      {Isa::kAvx512, DType::kF32, "delta net avx512", OrderClass::kLanes, &N_AVX3::kDeltaNetKernels},
      {Isa::kAvx2, DType::kF32, "delta net avx2", OrderClass::kLanes, &N_AVX2::kDeltaNetKernels},
  };
  return kTable;
}

}  // namespace coprime
#endif  // HWY_ONCE
