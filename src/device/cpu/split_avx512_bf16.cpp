// Products of BF16 weights with inputs in parts, with AVX512-BF16.
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "device/cpu/split_linear.h"
#include "hwy/base.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx512bf16")
namespace coprime {
namespace {

#include "device/cpu/split_pairs-inl.h"

struct Avx512Bf16 {
  using Sums = __m512;
  using Pairs = __m512bh;
  static HWY_INLINE Sums load(const float* at) { return _mm512_load_ps(at); }
  static HWY_INLINE void store(Sums sums, float* at) { _mm512_store_ps(at, sums); }
  static HWY_INLINE Pairs pairs(const std::byte* at) { return (Pairs)_mm512_loadu_si512(at); }
  static HWY_INLINE Pairs word(const std::byte* at) {
    int32_t bits;
    std::memcpy(&bits, at, sizeof bits);
    return (Pairs)_mm512_set1_epi32(bits);
  }
  static HWY_INLINE Sums dot(Sums sums, Pairs a, Pairs b) { return _mm512_dpbf16_ps(sums, a, b); }
};

}  // namespace

std::span<const KernelRow<SplitFunctions>> split_avx512_bf16_rows() {
  static constexpr KernelRow<SplitFunctions> kRows[] = {
      {Isa::kAvx512,
       DType::kBF16,
       "split avx512-bf16 BF16",
       OrderClass::kBfloatPairs,
       {SplitForm::kWords, multiply<Avx512Bf16>},
       {.avx512_bf16 = true},
       MathMode::kFast},  // two parts take as long as f32, which is exact
  };
  return kRows;
}

}  // namespace coprime
HWY_POP_ATTRIBUTES
