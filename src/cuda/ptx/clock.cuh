// The GPU's wall clock, in nanoseconds. It ticks in steps of up to a microsecond.
#pragma once

#include <cstdint>

namespace coprime::ptx {

__device__ inline uint64_t clock_ns() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
  return ns;
}

}  // namespace coprime::ptx
