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

// Rows of scalars that are worth taking at once, and rows of lanes for a count of them: the sums fill the registers.
constexpr int kMaxQueries = 6;
constexpr int panel_width(int queries) { return kParts == 2 ? (queries == 1 ? 4 : queries <= 3 ? 2 : 1) : 4; }

// A scalar in all lanes, loaded where it stands: GCC would keep it in a register that a sum needs.
HWY_INLINE Lanes broadcast_here(const float* x) {
  Lanes y;
  FloatVec first;
  asm volatile("vbroadcastss %1, %0" : "=v"(first.raw) : "m"(*x));
  COPRIME_PARTS y.part[i] = first;
  return y;
}

// 16 T columns of Q rows: out[q][c] += sum over k < count of x[q][k] * panel[k * stride + c]. What lies `ahead` bytes
// behind that which is read is asked for; 0: nothing.
template <class Type, int Q, int T>
HWY_INLINE void multiply_add_lanes(const float* const* x, int64_t count, const typename Type::Element* panel,
                                   int64_t stride, float* const* out, int64_t column, ptrdiff_t ahead) {
  Lanes sum[Q][T];
  const float* scalars[Q];
  COPRIME_UNROLL for (int q = 0; q < Q; ++q) {
    scalars[q] = x[q];
    COPRIME_UNROLL for (int t = 0; t < T; ++t) sum[q][t] = load(out[q] + column + 16 * t);
  }
  const typename Type::Element* row = panel + column;
  for (int64_t k = 0; k < count; ++k, row += stride) {
    const auto load_ahead = [&](int t) COPRIME_INLINE {
      __builtin_prefetch(reinterpret_cast<const std::byte*>(row + 16 * t) + ahead, 0, 2);
      return Type::load(row + 16 * t);
    };
    if constexpr (kParts * Q * T > 11 && kParts == 2) {  // sums in all registers but four
      COPRIME_UNROLL for (int t = 0; t < T; ++t) {
        const Lanes lanes = load_ahead(t);
        COPRIME_UNROLL for (int q = 0; q < Q; ++q) add_product(sum[q][t], lanes, broadcast_here(scalars[q] + k));
      }
    } else {
      Lanes lanes[T];
      COPRIME_UNROLL for (int t = 0; t < T; ++t) lanes[t] = load_ahead(t);
      COPRIME_UNROLL for (int q = 0; q < Q; ++q) {
        const Lanes scalar = broadcast(scalars[q][k]);
        COPRIME_UNROLL for (int t = 0; t < T; ++t) add_product(sum[q][t], lanes[t], scalar);
      }
    }
  }
  COPRIME_UNROLL for (int q = 0; q < Q; ++q) {
    COPRIME_UNROLL for (int t = 0; t < T; ++t) store(sum[q][t], out[q] + column + 16 * t);
  }
}

template <class Type, int Q>
HWY_NOINLINE void multiply_add_rows(const float* const* x, int64_t count, const typename Type::Element* panel,
                                    int64_t stride, int64_t width, float* const* out, ptrdiff_t ahead) {
  constexpr int kWidth = panel_width(Q);
  int64_t column = 0;
  for (; column + 16 * kWidth <= width; column += 16 * kWidth) {
    multiply_add_lanes<Type, Q, kWidth>(x, count, panel, stride, out, column, ahead);
  }
  if constexpr (kWidth > 1) {
    for (; column < width; column += 16) multiply_add_lanes<Type, Q, 1>(x, count, panel, stride, out, column, ahead);
  }
}

// out[r][c] += sum over k < count of x[r][k] * panel[k * stride + c], for r < rows <= kMaxQueries and c < width, a
// multiple of 16.
template <class Type>
HWY_INLINE void multiply_add(int64_t rows, const float* const* x, int64_t count, const typename Type::Element* panel,
                             int64_t stride, int64_t width, float* const* out, ptrdiff_t ahead = 0) {
  using RowsFn =
      void (*)(const float* const*, int64_t, const typename Type::Element*, int64_t, int64_t, float* const*, ptrdiff_t);
  constexpr RowsFn kRows[] = {multiply_add_rows<Type, 1>, multiply_add_rows<Type, 2>, multiply_add_rows<Type, 3>,
                              multiply_add_rows<Type, 4>, multiply_add_rows<Type, kMaxQueries>};
  if (rows == kMaxQueries) return kRows[4](x, count, panel, stride, width, out, ahead);
  if (rows <= 4) return kRows[rows - 1](x, count, panel, stride, width, out, ahead);
  kRows[3](x, count, panel, stride, width, out, ahead);
  kRows[rows - 5](x + 4, count, panel, stride, width, out + 4, 0);
}

}  // namespace coprime::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // COPRIME_SIMD

#endif  // per-target include guard
