// The fast device: SIMD kernels on this host's cores, over weights packed in tiles.
#pragma once

#include <atomic>
#include <memory>

#include "device/device.h"

namespace coprime {

enum class Isa : uint8_t { kReference, kAvx2, kAvx512 };

// The best that this CPU has, but no better than `limit`. kReference where it has no AVX2 with FMA and F16C.
Isa best_isa(Isa limit);
std::string_view isa_name(Isa isa);

struct CpuOptions {
  Isa isa = Isa::kAvx512;                     // the limit
  int threads = 1;                            // including the caller
  std::vector<int> cores;                     // core of each thread; empty: not pinned
  std::atomic<uint64_t>* progress = nullptr;  // counted up by every operation: a peer's deadline watches it
};

// A ReferenceDevice where the limit or the CPU leaves nothing else.
std::unique_ptr<Device> make_cpu_device(const CpuOptions& options);

}  // namespace coprime
