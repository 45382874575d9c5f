// Norms, sums, rotations, gates and activations of single rows. Replicated ones keep the order that device.h states:
// squares in 16 lanes, added pairwise. Tails go through the same lanes, zero-filled.
#include <array>

#include "base/limits.h"
#include "device/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/row_kernels.cpp"
#include "hwy/foreach_target.h"

#include "device/cpu/kernels.h"
#include "device/cpu/lanes16-inl.h"
#include "device/cpu/math-inl.h"

#if COPRIME_SIMD
HWY_BEFORE_NAMESPACE();
namespace coprime::HWY_NAMESPACE {
namespace {

// y[i] = f(x[i], z[i]).
template <class F>
HWY_INLINE void map(const float* x, const float* z, float* y, int64_t count, const F& f) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) store(f(load(x + i), load(z + i)), y + i);
  if (i < count) store_first(f(load_first(x + i, count - i), load_first(z + i, count - i)), y + i, count - i);
}

HWY_INLINE float rms_scale(float squares, int64_t count, float eps) {
  return 1.0f / __builtin_sqrtf(squares / static_cast<float>(count) + eps);
}

HWY_INLINE void scale_by(const float* x, int64_t columns, float scale, const float* weight, float* y) {
  const Lanes factor = broadcast(scale);
  map(x, weight, y, columns, [factor](Lanes a, Lanes w) COPRIME_INLINE { return (a * factor) * w; });
}

void rms_norm(const float* x, int64_t columns, const float* weight, float eps, float* y) {
  scale_by(x, columns, rms_scale(sum_of_squares(x, columns), columns, eps), weight, y);
}

// Calls use(i, lanes, columns of them) with ((terms[0] + terms[1]) + ...) of 16 columns from i on; fewer at the end,
// where the other lanes are 0.
template <class Use>
HWY_INLINE void for_each_total(std::span<const View> terms, int64_t row, int64_t columns, const Use& use) {
  std::array<const float*, kMaxRanks> rows;
  const size_t count = terms.size();
  for (size_t t = 0; t < count; ++t) rows[t] = terms[t].row(row);
  int64_t i = 0;
  for (; i + 16 <= columns; i += 16) {
    Lanes total = load(rows[0] + i);
    for (size_t t = 1; t < count; ++t) total = total + load(rows[t] + i);
    use(i, total, int64_t{16});
  }
  if (const int64_t left = columns - i; left > 0) {
    Lanes total = load_first(rows[0] + i, left);
    for (size_t t = 1; t < count; ++t) total = total + load_first(rows[t] + i, left);
    use(i, total, left);
  }
}

void sum(std::span<const View> terms, int64_t row, int64_t columns, float* out) {
  for_each_total(terms, row, columns, [out](int64_t i, Lanes total, int64_t count) COPRIME_INLINE {
    count == 16 ? store(total, out + i) : store_first(total, out + i, count);
  });
}

void add_norm(std::span<const View> terms, int64_t row, int64_t columns, float* residual, const float* weight,
              float eps, float* normed) {
  Lanes squares = zero();  // in sum_of_squares()'s order
  const auto add = [&](int64_t i, Lanes total, int64_t count) COPRIME_INLINE {
    const Lanes lanes = (count == 16 ? load(residual + i) : load_first(residual + i, count)) + total;
    count == 16 ? store(lanes, residual + i) : store_first(lanes, residual + i, count);
    squares = fma(lanes, lanes, squares);
  };
  for_each_total(terms, row, columns, add);
  if (weight != nullptr) scale_by(residual, columns, rms_scale(sum_of_lanes(squares), columns, eps), weight, normed);
}

void rotate(float* x, int64_t half, const float* cosines, const float* sines) {
  int64_t i = 0;
  for (; i + 16 <= half; i += 16) {
    const Lanes a = load(x + i), b = load(x + half + i), cosine = load(cosines + i), sine = load(sines + i);
    store(fnma(b, sine, a * cosine), x + i);
    store(fma(a, sine, b * cosine), x + half + i);
  }
  if (const int64_t left = half - i; left > 0) {
    const Lanes a = load_first(x + i, left), b = load_first(x + half + i, left);
    const Lanes cosine = load_first(cosines + i, left), sine = load_first(sines + i, left);
    store_first(fnma(b, sine, a * cosine), x + i, left);
    store_first(fma(a, sine, b * cosine), x + half + i, left);
  }
}

void sigmoid_gate(float* x, const float* gate, int64_t count) {
  map(x, gate, x, count, [](Lanes a, Lanes g) COPRIME_INLINE { return a * sigmoid(g); });
}

void swiglu(float* gate, const float* up, int64_t count) {
  map(gate, up, gate, count, [](Lanes g, Lanes u) COPRIME_INLINE { return silu(g) * u; });
}

void gated_norm(float* x, const float* gate, int64_t head_dim, const float* weight, float eps) {
  rms_norm(x, head_dim, weight, eps, x);
  map(x, gate, x, head_dim, [](Lanes a, Lanes g) COPRIME_INLINE { return a * silu(g); });
}

int64_t find_above(std::span<const float> logits, int64_t first, float threshold) {
  const float* x = logits.data();
  const auto size = static_cast<int64_t>(logits.size());
  const Lanes limit = broadcast(threshold);
  while (first + 16 <= size && !any_greater(load(x + first), limit)) first += 16;
  while (first < size && !(x[first] > threshold)) ++first;
  return first;
}

constexpr RowKernels kRowKernels = {rms_norm,   sum,        add_norm, rotate,      sigmoid_gate, swiglu,
                                    gated_norm, find_above, exp_row,  sigmoid_row, silu_row,     softplus_row};

}  // namespace
}  // namespace coprime::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // COPRIME_SIMD

#if HWY_ONCE
namespace coprime {

std::span<const KernelRow<RowFn>> row_kernels() {
  static constexpr KernelRow<RowFn> kTable[] = {
      {Isa::kAvx512, DType::kF32, "rows avx512", OrderClass::kLanes, &N_AVX3::kRowKernels},
      {Isa::kAvx2, DType::kF32, "rows avx2", OrderClass::kLanes, &N_AVX2::kRowKernels},
  };
  return kTable;
}

}  // namespace coprime
#endif  // HWY_ONCE
