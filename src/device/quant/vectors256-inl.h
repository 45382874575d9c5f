// Vectors of 8 rows, for the kernels of quant-inl.h: AVX2, and AVX-VNNI where COPRIME_AVX_VNNI is 1. Included inside
// the target's attributes and an unnamed namespace.

constexpr int kLanes = 8;
using Ints = __m256i;
using Floats = __m256;

inline Ints load(const void* at) { return _mm256_loadu_si256(static_cast<const __m256i*>(at)); }
inline void store(Ints v, void* at) { _mm256_storeu_si256(static_cast<__m256i*>(at), v); }
inline Floats load_floats(const float* at) { return _mm256_loadu_ps(at); }
inline void store_floats(Floats v, float* at) { _mm256_storeu_ps(at, v); }
inline Ints zero_ints() { return _mm256_setzero_si256(); }
inline Ints broadcast(int32_t value) { return _mm256_set1_epi32(value); }
inline Floats broadcast(float value) { return _mm256_set1_ps(value); }
// Four bytes of memory in every lane.
inline Ints word(const std::byte* at) {
  int32_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return broadcast(bits);
}
inline Ints broadcast_bytes(int value) { return _mm256_set1_epi8(static_cast<char>(value)); }

// Rows' values of fewer bits, widened.
inline Floats load_f16(const std::byte* at) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}
inline Ints load_unsigned(const std::byte* at) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
}
inline Ints load_signed(const std::byte* at) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
}
// 2^(e - 128), as scale_at() has it: the bits of 2^-127, a subnormal, are more than those of e = 0 shifted.
inline Floats load_e8m0(const std::byte* at) {
  const Ints bits = _mm256_max_epu32(_mm256_slli_epi32(load_unsigned(at), 23), broadcast(0x400000));
  return _mm256_mul_ps(_mm256_castsi256_ps(bits), broadcast(0.5f));
}

inline Ints bits_and(Ints a, Ints b) { return _mm256_and_si256(a, b); }
inline Ints bits_or(Ints a, Ints b) { return _mm256_or_si256(a, b); }
// Down by kBits (up where it is negative) in units of 16 bits; the caller masks.
template <int kBits>
inline Ints shift_down(Ints v) {
  if constexpr (kBits > 0) return _mm256_srli_epi16(v, kBits);
  if constexpr (kBits < 0) return _mm256_slli_epi16(v, -kBits);
  return v;
}
inline Ints lookup(const uint8_t (&table)[16], Ints codes) {
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table))),
                             codes);
}

inline Ints times_128(Ints v) { return _mm256_slli_epi32(v, 7); }
inline Ints add(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
inline Ints subtract(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }
inline Ints multiply(Ints a, Ints b) { return _mm256_mullo_epi32(a, b); }
inline Ints subtract_halves(Ints a, Ints b) { return _mm256_sub_epi16(a, b); }
inline Ints multiply_halves(Ints a, Ints b) { return _mm256_mullo_epi16(a, b); }
inline Ints twice_in_halves(Ints v) { return bits_or(bits_and(v, broadcast(0xffff)), _mm256_slli_epi32(v, 16)); }
inline Floats to_floats(Ints v) { return _mm256_cvtepi32_ps(v); }
inline Floats low_half_to_floats(Ints v) { return to_floats(_mm256_srai_epi32(_mm256_slli_epi32(v, 16), 16)); }
inline Floats high_half_to_floats(Ints v) { return to_floats(_mm256_srai_epi32(v, 16)); }

inline Floats multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
inline Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
inline Floats negate(Floats v) { return _mm256_xor_ps(v, _mm256_set1_ps(-0.0f)); }
inline Floats fused(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
inline Floats fused_negative(Floats a, Floats b, Floats c) { return _mm256_fnmadd_ps(a, b, c); }  // c - a b

#if COPRIME_AVX_VNNI

constexpr bool kBytesOf8Bits = true;

// Adds the products of two halves of each lane.
inline Ints add_pairs(Ints sum, Ints w, Ints x) { return _mm256_dpwssd_avx_epi32(sum, w, x); }

// The sum of products of codes with bytes of activations: one part, or two of which the first counts 128 times.
template <int kMaxCode, int kChunks, int kParts>
class ByteDot {
 public:
  ByteDot() { clear(); }
  // Step `step` of the sum, for `words` of the first part; those of the second are 32 bytes on.
  void add_chunk(int, Ints codes, const std::byte* words) {
    for (int p = 0; p < kParts; ++p) sum_[p] = _mm256_dpbusd_avx_epi32(sum_[p], codes, word(words + 32 * p));
  }
  Ints total() const { return kParts == 1 ? sum_[0] : add(_mm256_slli_epi32(sum_[0], 7), sum_[kParts - 1]); }

 private:
  void clear() {
    for (Ints& sum : sum_) sum = zero_ints();
  }
  Ints sum_[kParts];
};

#else

constexpr bool kBytesOf8Bits = false;  // vpmaddubsw adds two products in 16 bits

// A sum stays where it is: the compiler would turn chains of integer additions into trees, whose terms then spill.
inline Ints chain(Ints sum) {
  asm("" : "+x"(sum));
  return sum;
}

inline Ints add_pairs(Ints sum, Ints w, Ints x) { return chain(_mm256_add_epi32(sum, _mm256_madd_epi16(w, x))); }

// The sum of products of codes with bytes of activations: one part, or two of which the first counts 128 times. Pairs
// are added in 16 bits for as many steps as cannot overflow them.
template <int kMaxCode, int kChunks, int kParts>
class ByteDot {
 public:
  ByteDot() {}  // step 0 begins the sum
  // Step `step` of the sum, for `words` of the first part; those of the second are 32 bytes on.
  void add_chunk(int step, Ints codes, const std::byte* words) {
    for (int p = 0; p < kParts; ++p) {
      const Ints products = _mm256_maddubs_epi16(codes, word(words + 32 * p));
      pairs_[p] = chain(step % steps(p) == 0 ? products : _mm256_add_epi16(pairs_[p], products));
      if (step % steps(p) == steps(p) - 1) flush(step, p);
    }
  }
  Ints total() const { return sum_; }

 private:
  // How many pairs of products fit 16 bits: a low part is at most 64, others 127.
  static constexpr int steps(int p) {
    const int fit = 32767 / (2 * (p == 1 ? 64 : 127) * kMaxCode);
    return std::min(kChunks, fit >= 8 ? 8 : fit >= 4 ? 4 : 2);
  }
  static_assert(2 * 2 * 127 * kMaxCode <= 32767);

  // The first part is the first to flush.
  void flush(int step, int p) {
    const Ints pairs = _mm256_madd_epi16(pairs_[p], _mm256_set1_epi16(kParts == 2 && p == 0 ? 128 : 1));
    sum_ = p == 0 && step == steps(0) - 1 ? pairs : add(sum_, pairs);
  }
  Ints pairs_[kParts];
  Ints sum_;
};

#endif
