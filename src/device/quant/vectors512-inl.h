// Vectors of 16 rows, for the kernels of quant-inl.h: AVX-512 (F, BW) with VNNI. Included inside the target's
// attributes and an unnamed namespace.

constexpr int kLanes = 16;
using Ints = __m512i;
using Floats = __m512;

inline Ints load(const void* at) { return _mm512_loadu_si512(at); }
inline void store(Ints v, void* at) { _mm512_storeu_si512(at, v); }
inline Floats load_floats(const float* at) { return _mm512_loadu_ps(at); }
inline void store_floats(Floats v, float* at) { _mm512_storeu_ps(at, v); }
inline Ints zero_ints() { return _mm512_setzero_si512(); }
inline Ints broadcast(int32_t value) { return _mm512_set1_epi32(value); }
inline Floats broadcast(float value) { return _mm512_set1_ps(value); }
// Four bytes of memory in every lane.
inline Ints word(const std::byte* at) {
  int32_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return broadcast(bits);
}
inline Ints broadcast_bytes(int value) { return _mm512_set1_epi8(static_cast<char>(value)); }

// Rows' values of fewer bits, widened.
inline Floats load_f16(const std::byte* at) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}
inline Ints load_unsigned(const std::byte* at) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}
inline Ints load_signed(const std::byte* at) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}
// 2^(e - 128), as scale_at() has it: the bits of 2^-127, a subnormal, are more than those of e = 0 shifted.
inline Floats load_e8m0(const std::byte* at) {
  const Ints bits = _mm512_max_epu32(_mm512_slli_epi32(load_unsigned(at), 23), broadcast(0x400000));
  return _mm512_mul_ps(_mm512_castsi512_ps(bits), broadcast(0.5f));
}

inline Ints bits_and(Ints a, Ints b) { return _mm512_and_si512(a, b); }
inline Ints bits_or(Ints a, Ints b) { return _mm512_or_si512(a, b); }
// Down by kBits (up where it is negative) in units of 16 bits; the caller masks.
template <int kBits>
inline Ints shift_down(Ints v) {
  if constexpr (kBits > 0) return _mm512_srli_epi16(v, kBits);
  if constexpr (kBits < 0) return _mm512_slli_epi16(v, -kBits);
  return v;
}
inline Ints lookup(const uint8_t (&table)[16], Ints codes) {
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table))), codes);
}

inline Ints times_128(Ints v) { return _mm512_slli_epi32(v, 7); }
inline Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
inline Ints subtract(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
inline Ints multiply(Ints a, Ints b) { return _mm512_mullo_epi32(a, b); }
inline Ints subtract_halves(Ints a, Ints b) { return _mm512_sub_epi16(a, b); }
inline Ints multiply_halves(Ints a, Ints b) { return _mm512_mullo_epi16(a, b); }
inline Ints twice_in_halves(Ints v) { return bits_or(bits_and(v, broadcast(0xffff)), _mm512_slli_epi32(v, 16)); }
inline Floats to_floats(Ints v) { return _mm512_cvtepi32_ps(v); }
inline Floats low_half_to_floats(Ints v) { return to_floats(_mm512_srai_epi32(_mm512_slli_epi32(v, 16), 16)); }
inline Floats high_half_to_floats(Ints v) { return to_floats(_mm512_srai_epi32(v, 16)); }

inline Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Floats fused(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Floats fused_negative(Floats a, Floats b, Floats c) { return _mm512_fnmadd_ps(a, b, c); }  // c - a b

constexpr bool kBytesOf8Bits = true;

// Adds the products of two halves of each lane.
inline Ints add_pairs(Ints sum, Ints w, Ints x) { return _mm512_dpwssd_epi32(sum, w, x); }

// The sum of products of codes with bytes of activations: one part, or two of which the first counts 128 times.
template <int kMaxCode, int kChunks, int kParts>
class ByteDot {
 public:
  ByteDot() { clear(); }
  // Step `step` of the sum, for `words` of the first part; those of the second are 32 bytes on.
  void add_chunk(int, Ints codes, const std::byte* words) {
    for (int p = 0; p < kParts; ++p) sum_[p] = _mm512_dpbusd_epi32(sum_[p], codes, word(words + 32 * p));
  }
  Ints total() const { return kParts == 1 ? sum_[0] : add(_mm512_slli_epi32(sum_[0], 7), sum_[kParts - 1]); }

 private:
  void clear() {
    for (Ints& sum : sum_) sum = zero_ints();
  }
  Ints sum_[kParts];
};
