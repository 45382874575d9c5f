// What the benches of the CPU device measure beside their subject: time, and the rate of independent fused
// multiply-adds. (The plain read is tools/plain_read.h.)
#pragma once

#include <immintrin.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "device/isa.h"

namespace coprime {

// Of one thread's own CPU time, so that other work on the machine does not count; of the wall clock for several.
inline double seconds(int threads) {
  timespec time;
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

inline double fastest(const std::vector<double>& times) { return *std::min_element(times.begin(), times.end()); }

constexpr int64_t kFmaSteps = 200'000;
constexpr int kFmaChains = 12;

__attribute__((target("avx2,fma"))) inline float fma_avx2() {
  __m256 sums[kFmaChains], a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(1e-3f);
  for (int i = 0; i < kFmaChains; ++i) sums[i] = _mm256_set1_ps(static_cast<float>(i));  // equal chains would be merged
  for (int64_t i = 0; i < kFmaSteps; ++i) {
#pragma GCC unroll 12
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(sum, a, b);
  }
  for (const __m256& sum : sums) a = _mm256_add_ps(a, sum);
  return _mm256_cvtss_f32(a);
}

__attribute__((target("avx512f"))) inline float fma_avx512() {
  __m512 sums[kFmaChains], a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(1e-3f);
  for (int i = 0; i < kFmaChains; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));  // equal chains would be merged
  for (int64_t i = 0; i < kFmaSteps; ++i) {
#pragma GCC unroll 12
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(sum, a, b);
  }
  for (const __m512& sum : sums) a = _mm512_add_ps(a, sum);
  return _mm512_cvtss_f32(a);
}

// Floating-point operations of one call on one thread.
inline double fma_operations(Isa isa) { return 2.0 * (isa >= Isa::kAvx512 ? 16 : 8) * kFmaChains * kFmaSteps; }

// Of one thread; the result only keeps the work from being left out.
inline float multiply_add_much(Isa isa) { return isa >= Isa::kAvx512 ? fma_avx512() : fma_avx2(); }

}  // namespace coprime
