// The inner product that attention and the delta rule are made of: Q rows of scalars against a panel whose rows lie
// along lanes. Invariant: each output is one chain of fused multiply-adds, k ascending, whatever Q and T are.
#if defined(COPRIME_DEVICE_CPU_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef COPRIME_DEVICE_CPU_PANEL_INL_H_
#undef COPRIME_DEVICE_CPU_PANEL_INL_H_
#else
#define COPRIME_DEVICE_CPU_PANEL_INL_H_
#endif

#include "device/cpu/lanes16-inl.h"

#if COPRIME_SIMD
HWY_BEFORE_NAMESPACE();
namespace coprime::HWY_NAMESPACE {

#undef COPRIME_UNROLL
#define COPRIME_UNROLL _Pragma("GCC unroll 16")

// Rows of scalars that are worth taking at once, and lanes for a count of them: the sums fill the registers.
constexpr int kMaxQueries = kParts == 2 ? 5 : 6;
constexpr int panel_width(int queries) { return kParts == 2 ? (queries == 1 ? 4 : queries == 2 ? 2 : 1) : 4; }

// sum[q][t] += sum over k < count of x[q][k] * panel[k * stride + 16 t ...].
template <class Type, int Q, int T>
HWY_INLINE void accumulate(Lanes (&sum)[Q][T], const float* const* x, const typename Type::Element* panel,
                           int64_t stride, int64_t count) {
  const float* scalars[Q];
  COPRIME_UNROLL for (int q = 0; q < Q; ++q) scalars[q] = x[q];
  for (int64_t k = 0; k < count; ++k, panel += stride) {
    Lanes row[T];
    COPRIME_UNROLL for (int t = 0; t < T; ++t) row[t] = Type::load(panel + 16 * t);
    COPRIME_UNROLL for (int q = 0; q < Q; ++q) {
      const Lanes scalar = broadcast(scalars[q][k]);
      COPRIME_UNROLL for (int t = 0; t < T; ++t) add_product(sum[q][t], row[t], scalar);
    }
  }
}

}  // namespace coprime::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // COPRIME_SIMD

#endif  // per-target include guard
