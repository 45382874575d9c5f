// The plain read of memory that decode is measured against: one thread, full-width loads, nothing else.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace coprime {

// The exclusive or of all bytes but a tail of fewer than 256, so that nothing is optimised away.
__attribute__((target("avx2"))) inline uint64_t read_bytes(const std::byte* data, size_t bytes) {
  __m256i sums[8] = {};
  for (size_t i = 0; i + 256 <= bytes; i += 256) {
#pragma GCC unroll 8
    for (size_t j = 0; j < 8; ++j) {
      sums[j] = _mm256_xor_si256(sums[j], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + i + 32 * j)));
    }
  }
  alignas(32) uint64_t lanes[4], total = 0;
  for (const __m256i& sum : sums) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sum);
    total ^= lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3];
  }
  return total;
}

}  // namespace coprime
