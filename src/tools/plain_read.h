// The plain read of memory that decode is measured against: full-width loads, nothing else.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "tensor/buffer.h"

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

// GB/s of so many threads that together read `bytes` again and again, for at least a tenth of a second.
class PlainRead {
 public:
  PlainRead(int64_t bytes, int threads) : threads_(threads) {
    part_bytes_ = static_cast<size_t>(std::clamp<int64_t>(bytes, 1, kMostBytes) / threads + 255) / 256 * 256;
    for (int thread = 0; thread < threads; ++thread) parts_.emplace_back(part_bytes_);
    run([](Buffer& part) { std::fill_n(part.as<unsigned char>(), part.size(), static_cast<unsigned char>(1)); });
  }

  double gb_s() {
    double passes = 1;
    while (true) {
      const int64_t begin_us = now_us();
      run([&](Buffer& part) {
        uint64_t total = 0;
        for (int pass = 0; pass < static_cast<int>(passes); ++pass) {
          asm volatile("" ::: "memory");  // every pass reads again
          total ^= read_bytes(part.data(), part.size());
        }
        volatile uint64_t sink = total;
        static_cast<void>(sink);
      });
      const auto took_us = static_cast<double>(std::max<int64_t>(now_us() - begin_us, 1));
      if (took_us >= 1e5) return static_cast<double>(part_bytes_) * threads_ * passes / took_us / 1e3;
      passes = std::ceil(passes * std::min(1.3e5 / took_us, 100.0));
    }
  }

 private:
  // Memory beyond all caches is read as fast from a part of it.
  static constexpr int64_t kMostBytes = int64_t{1} << 30;

  template <class Body>
  void run(const Body& body) {
    std::vector<std::thread> threads;
    for (size_t i = 1; i < parts_.size(); ++i) threads.emplace_back([&, i] { body(parts_[i]); });
    body(parts_[0]);
    for (std::thread& thread : threads) thread.join();
  }

  int threads_;
  size_t part_bytes_ = 0;
  std::vector<Buffer> parts_;
};

}  // namespace coprime
