// Rounding activations with AVX2: quantise_reference(), bit for bit.
#include <immintrin.h>

#include <cstring>

#include "device/cpu/quant/activations.h"
#include "hwy/base.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c")
namespace coprime {
namespace {

__m256i* vector(void* at) { return static_cast<__m256i*>(at); }

// The bits of the largest magnitude: as integers, so that a NaN is the largest of all.
uint32_t largest_magnitude(const float* x) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  __m256i largest = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + 8 * i));
    largest = _mm256_max_epu32(largest, _mm256_and_si256(bits, mask));
  }
  __m128i four = _mm_max_epu32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(four));
}

__m256i round_eight(const float* x, __m256 inverse) {
  return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
}

// 16 integers, columns ascending.
__m256i round_sixteen(const float* x, __m256 inverse) {
  const __m256i packed = _mm256_packs_epi32(round_eight(x, inverse), round_eight(x + 8, inverse));
  return _mm256_permute4x64_epi64(packed, 0xd8);
}

int32_t sum_of(__m256i halves) {
  const __m256i eight = _mm256_madd_epi16(halves, _mm256_set1_epi16(1));
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1));
  return _mm_cvtsi128_si32(four);
}

// 32 signed bytes in the order of the weights.
__m256i bytes_of(__m256i first, __m256i second) {
  const __m256i order = _mm256_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15, 0, 2, 1, 3, 4, 6, 5, 7,
                                         8, 10, 9, 11, 12, 14, 13, 15);
  return _mm256_shuffle_epi8(_mm256_permute4x64_epi64(_mm256_packs_epi16(first, second), 0xd8), order);
}

__m256i high_part(__m256i q) { return _mm256_srai_epi16(_mm256_add_epi16(q, _mm256_set1_epi16(64)), 7); }
__m256i low_part(__m256i q, __m256i high) { return _mm256_sub_epi16(q, _mm256_slli_epi16(high, 7)); }

}  // namespace

void quantise_avx2(const QuantiseWork& work) {
  const int64_t bytes = activation_block_bytes(work.out.form);
  for (int64_t r = work.first; r < work.last; ++r) {
    std::byte* out = work.out.row(r);
    for (int64_t b = 0; b < work.out.blocks; ++b, out += bytes) {
      float spare[kQuantBlock];
      const float* x = activation_columns(work, r, b, spare);
      const ActivationScale scale = activation_scale(largest_magnitude(x), work.math);
      __m256i first = _mm256_setzero_si256(), second = first;
      if (scale.inverse != 0) {
        const __m256 inverse = _mm256_set1_ps(scale.inverse);
        first = round_sixteen(x, inverse);
        second = round_sixteen(x + 16, inverse);
      }
      ActivationBlock head = {};
      head.scale = scale.scale;
      head.integer_half_sum[0] = sum_of(first);
      head.integer_half_sum[1] = sum_of(second);
      head.integer_sum = head.integer_half_sum[0] + head.integer_half_sum[1];
      head.sum = head.scale * static_cast<float>(head.integer_sum);
      head.half_sum[0] = head.scale * static_cast<float>(head.integer_half_sum[0]);
      head.half_sum[1] = head.scale * static_cast<float>(head.integer_half_sum[1]);
      std::memcpy(out, &head, sizeof head);
      std::byte* const integers = out + sizeof head;
      switch (work.out.form) {
        case ActivationForm::kHalves:
          _mm256_storeu_si256(vector(integers), first);
          _mm256_storeu_si256(vector(integers + 32), second);
          break;
        case ActivationForm::kOneByte:
          _mm256_storeu_si256(vector(integers), bytes_of(first, second));
          break;
        case ActivationForm::kTwoBytes: {
          const __m256i high_first = high_part(first), high_second = high_part(second);
          _mm256_storeu_si256(vector(integers), bytes_of(high_first, high_second));
          _mm256_storeu_si256(vector(integers + 32),
                              bytes_of(low_part(first, high_first), low_part(second, high_second)));
          break;
        }
      }
    }
  }
}

}  // namespace coprime
HWY_POP_ATTRIBUTES
