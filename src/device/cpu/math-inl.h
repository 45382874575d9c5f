// exp and the activations on 16 lanes, written out so that every target gives the same bits. Derived from the series of
// exp and atanh; errors are bounded in row_kernels_test.cpp. A NaN stays a NaN; no finite input gives one.
#if defined(COPRIME_DEVICE_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef COPRIME_DEVICE_CPU_MATH_INL_H_
#undef COPRIME_DEVICE_CPU_MATH_INL_H_
#else
#define COPRIME_DEVICE_CPU_MATH_INL_H_
#endif

#include "device/cpu/lanes16-inl.h"

#if COPRIME_SIMD
HWY_BEFORE_NAMESPACE();
namespace coprime::HWY_NAMESPACE {

// e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln(2)/2: the Taylor series to r^7 leaves 5e-9. Results below the
// smallest subnormal are zero, above the largest float infinity.
HWY_INLINE Lanes exp(Lanes x) {
  x = min(broadcast(89.0f), max(broadcast(-104.0f), x));
  const Lanes whole = round_to_whole(x, broadcast(1.44269504f)), n = whole - broadcast(kWhole);
  Lanes r = fnma(n, broadcast(0x1.62e4p-1f), x);  // ln 2, high part: n times it is exact
  r = fnma(n, broadcast(0x1.7f7d1cf8p-20f), r);   // and the rest
  Lanes p = broadcast(1.0f / 5040);
  p = fma(p, r, broadcast(1.0f / 720));
  p = fma(p, r, broadcast(1.0f / 120));
  p = fma(p, r, broadcast(1.0f / 24));
  p = fma(p, r, broadcast(1.0f / 6));
  p = fma(p, r, broadcast(0.5f));
  p = fma(p, r, broadcast(1.0f));
  p = fma(p, r, broadcast(1.0f));
  return scale_by_power(p, whole);
}

HWY_INLINE Lanes sigmoid(Lanes x) { return broadcast(1.0f) / (broadcast(1.0f) + exp(negate(x))); }

HWY_INLINE Lanes silu(Lanes x) {
  x = max(broadcast(-3e38f), x);  // -inf has the limit, zero
  return x / (broadcast(1.0f) + exp(negate(x)));
}

// log(1 + e^x) = max(x, 0) + log(1 + y) with y = e^-|x| in [0, 1], and log(1 + y) = 2 atanh(s) with s = y / (2 + y) <=
// 1/3: the series to s^15 leaves 2e-9.
HWY_INLINE Lanes softplus(Lanes x) {
  const Lanes y = exp(negate(absolute(x)));
  const Lanes s = y / (broadcast(2.0f) + y), square = s * s;
  Lanes p = broadcast(2.0f / 15);
  p = fma(p, square, broadcast(2.0f / 13));
  p = fma(p, square, broadcast(2.0f / 11));
  p = fma(p, square, broadcast(2.0f / 9));
  p = fma(p, square, broadcast(2.0f / 7));
  p = fma(p, square, broadcast(2.0f / 5));
  p = fma(p, square, broadcast(2.0f / 3));
  p = fma(p, square, broadcast(2.0f));
  return fma(p, s, max(zero(), x));
}

// y[i] = f(x[i]) for i in [0, count), 16 at a time.
template <class F>
HWY_INLINE void map(const float* x, float* y, int64_t count, const F& f) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) store(f(load(x + i)), y + i);
  if (i < count) store_first(f(load_first(x + i, count - i)), y + i, count - i);
}

// The same along rows, for callers in which a copy of the code would weigh more than a call. y may be x.
inline HWY_NOINLINE void exp_row(const float* x, float* y, int64_t count) {
  map(x, y, count, [](Lanes a) COPRIME_INLINE { return exp(a); });
}
inline HWY_NOINLINE void sigmoid_row(const float* x, float* y, int64_t count) {
  map(x, y, count, [](Lanes a) COPRIME_INLINE { return sigmoid(a); });
}
inline HWY_NOINLINE void silu_row(const float* x, float* y, int64_t count) {
  map(x, y, count, [](Lanes a) COPRIME_INLINE { return silu(a); });
}
inline HWY_NOINLINE void softplus_row(const float* x, float* y, int64_t count) {
  map(x, y, count, [](Lanes a) COPRIME_INLINE { return softplus(a); });
}

}  // namespace coprime::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // COPRIME_SIMD

#endif  // per-target include guard
