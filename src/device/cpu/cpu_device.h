// The fast device: SIMD kernels on this host's cores, over weights packed in tiles.
#pragma once

#include <atomic>
#include <memory>

#include "device/device.h"
#include "device/isa.h"
#include "device/math_mode.h"

namespace coprime {

struct CpuOptions {
  Isa isa = Isa::kAmx;  // the limit
  MathMode math = MathMode::kSplit;
  bool exact = false;                         // the same bits on every CPU: float weights in OrderClass::kSequentialFma
  int threads = 1;                            // including the caller
  std::vector<int> cores;                     // core of each thread; empty: not pinned
  std::atomic<uint64_t>* progress = nullptr;  // counted up by every operation: a peer's deadline watches it
};

// A ReferenceDevice where the limit or the CPU leaves nothing else.
std::unique_ptr<Device> make_cpu_device(const CpuOptions& options);

}  // namespace coprime
