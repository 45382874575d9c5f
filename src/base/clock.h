// Monotonic time in microseconds.
#pragma once

#include <chrono>
#include <cstdint>

namespace coprime {

inline int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace coprime
