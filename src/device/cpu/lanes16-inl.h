// A row of 16 floats, the virtual vector that every kernel of device/cpu is written in: two registers of AVX2, one of
// AVX-512. Owns the few operations that kernels need on it, for each target that Highway compiles the including file
// for. Invariant: every operation gives the same bits on every target; sums over the 16 lanes go pairwise, i with i+8,
// i+4, i+2, i+1.
#if defined(COPRIME_DEVICE_CPU_LANES16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef COPRIME_DEVICE_CPU_LANES16_INL_H_
#undef COPRIME_DEVICE_CPU_LANES16_INL_H_
#else
#define COPRIME_DEVICE_CPU_LANES16_INL_H_
#endif

#include <bit>
#include <cstdint>

#include "hwy/highway.h"

#undef COPRIME_SIMD
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
#define COPRIME_SIMD 1  // the baseline that Highway compiles as well has no kernels
#else
#define COPRIME_SIMD 0
#endif

#if COPRIME_SIMD
HWY_BEFORE_NAMESPACE();
namespace coprime::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#undef COPRIME_INLINE
#define COPRIME_INLINE __attribute__((always_inline))  // of a lambda: passing Lanes to a call goes through memory

using FloatTag = hn::CappedTag<float, 16>;
using IntTag = hn::Rebind<int32_t, FloatTag>;
using HalfTag = hn::Rebind<hwy::float16_t, FloatTag>;
using ShortTag = hn::Rebind<uint16_t, FloatTag>;
using SignedShortTag = hn::Rebind<int16_t, FloatTag>;
using ByteTag = hn::Rebind<int8_t, FloatTag>;
using WordTag = hn::Rebind<uint32_t, FloatTag>;
using FloatVec = hn::Vec<FloatTag>;
constexpr FloatTag kFloats;
constexpr int kRegisterLanes = static_cast<int>(hn::MaxLanes(kFloats));
constexpr int kParts = 16 / kRegisterLanes;
#undef COPRIME_PARTS
#define COPRIME_PARTS _Pragma("GCC unroll 2") for (int i = 0; i < kParts; ++i)

struct Lanes {
  FloatVec part[kParts];
};

HWY_INLINE Lanes zero() {
  Lanes y;
  COPRIME_PARTS y.part[i] = hn::Zero(kFloats);
  return y;
}
HWY_INLINE Lanes broadcast(float x) {
  Lanes y;
  COPRIME_PARTS y.part[i] = hn::Set(kFloats, x);
  return y;
}
HWY_INLINE Lanes load(const float* x) {
  Lanes y;
  COPRIME_PARTS y.part[i] = hn::LoadU(kFloats, x + i * kRegisterLanes);
  return y;
}
HWY_INLINE void store(Lanes x, float* y) { COPRIME_PARTS hn::StoreU(x.part[i], kFloats, y + i * kRegisterLanes); }

HWY_INLINE Lanes operator+(Lanes a, Lanes b) {
  COPRIME_PARTS a.part[i] = hn::Add(a.part[i], b.part[i]);
  return a;
}
HWY_INLINE Lanes operator-(Lanes a, Lanes b) {
  COPRIME_PARTS a.part[i] = hn::Sub(a.part[i], b.part[i]);
  return a;
}
HWY_INLINE Lanes operator*(Lanes a, Lanes b) {
  COPRIME_PARTS a.part[i] = hn::Mul(a.part[i], b.part[i]);
  return a;
}
HWY_INLINE Lanes operator/(Lanes a, Lanes b) {
  COPRIME_PARTS a.part[i] = hn::Div(a.part[i], b.part[i]);
  return a;
}
// a * b + c, rounded once.
HWY_INLINE Lanes fma(Lanes a, Lanes b, Lanes c) {
  COPRIME_PARTS c.part[i] = hn::MulAdd(a.part[i], b.part[i], c.part[i]);
  return c;
}
// sum = fma(a, b, sum). Assembly, because GCC 12 picks forms of the instruction that overwrite a factor, and then
// spills sums of kernels that fill the registers.
HWY_INLINE void add_product(Lanes& sum, const Lanes& a, const Lanes& b) {
  COPRIME_PARTS asm("vfmadd231ps %2, %1, %0" : "+v"(sum.part[i].raw) : "v"(a.part[i].raw), "v"(b.part[i].raw));
}
// c - a * b, rounded once.
HWY_INLINE Lanes fnma(Lanes a, Lanes b, Lanes c) {
  COPRIME_PARTS c.part[i] = hn::NegMulAdd(a.part[i], b.part[i], c.part[i]);
  return c;
}
// The second where either is a NaN.
HWY_INLINE Lanes max(Lanes a, Lanes b) {
  COPRIME_PARTS a.part[i] = hn::Max(a.part[i], b.part[i]);
  return a;
}
HWY_INLINE Lanes min(Lanes a, Lanes b) {
  COPRIME_PARTS a.part[i] = hn::Min(a.part[i], b.part[i]);
  return a;
}
HWY_INLINE Lanes negate(Lanes a) {
  COPRIME_PARTS a.part[i] = hn::Neg(a.part[i]);
  return a;
}
HWY_INLINE Lanes absolute(Lanes a) {
  COPRIME_PARTS a.part[i] = hn::Abs(a.part[i]);
  return a;
}
// A whole number n in [-252, 254], as round_to_whole() gives it: still offset by kWhole.
constexpr float kWhole = 0x1.8p23f;  // the floats around it are whole numbers one apart
// The nearest whole number to a * b, ties to even; minus broadcast(kWhole) it is the number itself.
HWY_INLINE Lanes round_to_whole(Lanes a, Lanes b) { return fma(a, b, broadcast(kWhole)); }
// a * 2^n; rounded once where the result is subnormal.
HWY_INLINE Lanes scale_by_power(Lanes a, Lanes n) {
  COPRIME_PARTS {
    const auto whole = hn::Sub(hn::BitCast(IntTag(), n.part[i]), hn::Set(IntTag(), std::bit_cast<int32_t>(kWhole)));
    const auto half = hn::ShiftRight<1>(whole), bias = hn::Set(IntTag(), 127);
    const auto first = hn::BitCast(kFloats, hn::ShiftLeft<23>(hn::Add(half, bias)));
    const auto second = hn::BitCast(kFloats, hn::ShiftLeft<23>(hn::Add(hn::Sub(whole, half), bias)));
    a.part[i] = hn::Mul(hn::Mul(a.part[i], first), second);
  }
  return a;
}
HWY_INLINE bool any_greater(Lanes a, Lanes b) {
  bool any = false;
  COPRIME_PARTS any |= !hn::AllFalse(kFloats, hn::Gt(a.part[i], b.part[i]));
  return any;
}
// The first `count` lanes of a, and those of b after them.
HWY_INLINE Lanes first_lanes(int64_t count, Lanes a, Lanes b) {
  COPRIME_PARTS {
    const int64_t here = count - i * kRegisterLanes;
    const auto mask = hn::FirstN(kFloats, static_cast<size_t>(here < 0                ? 0
                                                              : here > kRegisterLanes ? kRegisterLanes
                                                                                      : here));
    a.part[i] = hn::IfThenElse(mask, a.part[i], b.part[i]);
  }
  return a;
}
HWY_INLINE Lanes load_first(const float* x, int64_t count) {
  alignas(64) float lanes[16] = {};
  for (int64_t i = 0; i < count; ++i) lanes[i] = x[i];
  return load(lanes);
}
HWY_INLINE void store_first(Lanes x, float* y, int64_t count) {
  alignas(64) float lanes[16];
  store(x, lanes);
  for (int64_t i = 0; i < count; ++i) y[i] = lanes[i];
}

// 16 stored numbers to floats. kUnit is what a float has to be multiplied with to be the number.
struct BF16 {
  using Element = uint16_t;
  static constexpr float kUnit = 1;
  static HWY_INLINE Lanes load(const uint16_t* x) {
    Lanes y;
    COPRIME_PARTS {
      const auto wide = hn::PromoteTo(WordTag(), hn::LoadU(ShortTag(), x + i * kRegisterLanes));
      y.part[i] = hn::BitCast(kFloats, hn::ShiftLeft<16>(wide));
    }
    return y;
  }
  static HWY_INLINE float scalar(uint16_t x) { return std::bit_cast<float>(uint32_t{x} << 16); }
};
struct F16 {
  using Element = uint16_t;
  static constexpr float kUnit = 1;
  static HWY_INLINE Lanes load(const uint16_t* x) {
    Lanes y;
    COPRIME_PARTS {
      const auto half = hn::LoadU(HalfTag(), reinterpret_cast<const hwy::float16_t*>(x) + i * kRegisterLanes);
      y.part[i] = hn::PromoteTo(kFloats, half);
    }
    return y;
  }
  static HWY_INLINE float scalar(uint16_t x) { return _cvtsh_ss(x); }
};
struct F32 {
  using Element = float;
  static constexpr float kUnit = 1;
  static HWY_INLINE Lanes load(const float* x) { return HWY_NAMESPACE::load(x); }
  static HWY_INLINE float scalar(float x) { return x; }
};
// Exponent and mantissa stand in a half as they are: seven bits up, and its bias is larger by 8. NaNs become 480.
struct E4M3 {
  using Element = uint8_t;
  static constexpr float kUnit = 256;
  static HWY_INLINE Lanes load(const uint8_t* x) {
    Lanes y;
    COPRIME_PARTS {
      const auto wide = hn::PromoteTo(SignedShortTag(),
                                      hn::LoadU(ByteTag(), reinterpret_cast<const int8_t*>(x) + i * kRegisterLanes));
      const auto bits = hn::And(hn::ShiftLeft<7>(wide), hn::Set(SignedShortTag(), static_cast<int16_t>(0xbfff)));
      y.part[i] = hn::PromoteTo(kFloats, hn::BitCast(HalfTag(), bits));
    }
    return y;
  }
  static HWY_INLINE float scalar(uint8_t x) {
    return _cvtsh_ss(static_cast<uint16_t>((x & 0x80) << 8 | (x & 0x7f) << 7));
  }
};

// 16 pairs of BF16: the low halves of 32-bit words, and the high halves, as floats.
HWY_INLINE void load_pairs(const uint16_t* x, Lanes& even, Lanes& odd) {
  COPRIME_PARTS {
    const auto words = hn::LoadU(WordTag(), reinterpret_cast<const uint32_t*>(x) + i * kRegisterLanes);
    even.part[i] = hn::BitCast(kFloats, hn::ShiftLeft<16>(words));
    odd.part[i] = hn::BitCast(kFloats, hn::And(words, hn::Set(WordTag(), 0xffff0000u)));
  }
}

// Elements 4 i + j of 64 floats: lane i of out[j].
HWY_INLINE void load_transposed4(const float* x, Lanes (&out)[4]) {
  COPRIME_PARTS {
    hn::LoadInterleaved4(kFloats, x + 4 * i * kRegisterLanes, out[0].part[i], out[1].part[i], out[2].part[i],
                         out[3].part[i]);
  }
}

namespace detail {
HWY_INLINE __m256 fold_halves_add(Lanes x) {
#if HWY_TARGET == HWY_AVX3
  return _mm256_add_ps(_mm512_castps512_ps256(x.part[0].raw), _mm512_extractf32x8_ps(x.part[0].raw, 1));
#else
  return _mm256_add_ps(x.part[0].raw, x.part[1].raw);
#endif
}
HWY_INLINE __m256 fold_halves_max(Lanes x) {
#if HWY_TARGET == HWY_AVX3
  return _mm256_max_ps(_mm512_castps512_ps256(x.part[0].raw), _mm512_extractf32x8_ps(x.part[0].raw, 1));
#else
  return _mm256_max_ps(x.part[0].raw, x.part[1].raw);
#endif
}
}  // namespace detail

HWY_INLINE float sum_of_lanes(Lanes x) {
  const __m256 eight = detail::fold_halves_add(x);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
HWY_INLINE float first_lane(Lanes x) { return hn::GetLane(x.part[0]); }
HWY_INLINE float max_of_lanes(Lanes x) {
  const __m256 eight = detail::fold_halves_max(x);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// The replicated order: lane = column mod 16, columns ascending, fused; then sum_of_lanes().
HWY_INLINE float sum_of_squares(const float* x, int64_t count) {
  Lanes squares = zero();
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const Lanes lanes = load(x + i);
    squares = fma(lanes, lanes, squares);
  }
  if (i < count) {
    const Lanes lanes = load_first(x + i, count - i);
    squares = fma(lanes, lanes, squares);
  }
  return sum_of_lanes(squares);
}

}  // namespace coprime::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // COPRIME_SIMD

#endif  // per-target include guard
