// Computation that stands for a rank's work in the benches of gates: its time depends on nothing but the core.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdint>

namespace coprime {

// Processor time of this thread.
inline double cpu_us() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

// Dependent multiplications.
inline float work(int64_t steps) {
  volatile float seed = 1.0f;
  float value = seed;
  for (int64_t i = 0; i < steps; ++i) value = value * 0.999999f + 1e-6f;
  return value;
}

// On an undisturbed core.
inline double work_steps_per_us() {
  constexpr int64_t kSteps = 200'000;
  double best = 0;
  for (int i = 0; i < 50; ++i) {
    const double begin = cpu_us();
    volatile float sink = work(kSteps);
    static_cast<void>(sink);
    best = std::max(best, kSteps / (cpu_us() - begin));
  }
  return best;
}

}  // namespace coprime
