// What hosts and kernels share: the words at the head of a slab, the record of an error, and what a kernel is told of
// its world.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/all_reduce/slab_layout.h"

namespace coprime {

// The first words of a slab. `abort` alone is written by peers.
struct SlabControl {
  uint32_t call;                    // the number of the next launch
  uint32_t arrivals;                // blocks of the running launch that have read it
  uint32_t reported;                // 1 once the error record has its writer
  uint32_t bailed_call, bail_outs;  // the last launch that ended without a sum, and how many did
  alignas(128) uint32_t abort;      // 0, or abort_word(): every kernel of this rank ends without a sum
};

// Calls are numbered from 1, and never 0: flags begin with 0. Parity alternates all the same.
constexpr uint32_t call_after(uint32_t call) { return call == 0xffffffff ? 2 : call + 1; }

// Who gave up waiting for whom.
constexpr uint32_t abort_word(int reporter, int late) {
  return 0x10000u | static_cast<uint32_t>(reporter) << 8 | static_cast<uint32_t>(late);
}
constexpr int abort_reporter(uint32_t word) { return static_cast<int>(word >> 8 & 0xff); }
constexpr int abort_late(uint32_t word) { return static_cast<int>(word & 0xff); }

// In pinned host memory, written once by one thread of the GPU; complete when `state` is 1.
struct GpuErrorRecord {
  uint32_t state;
  int32_t reporter, late;  // ranks: who gave up, and whom it waited for
  uint32_t call;
  uint64_t word;  // the 16 bytes, or with flags the block, that did not come; of the reporter alone
};

// By value to every kernel.
struct GpuWorld {
  int world = 0, rank = 0;
  SlabLayout layout;
  std::byte* slabs[kMaxGpuRanks] = {};  // by rank, this rank's own among them
  GpuErrorRecord* record = nullptr;
  uint64_t timeout_ns = 0;  // of one launch's waits
  int64_t kept_empty = 0;   // of each slot: what the push protocol uses
  float throttle_gb_s = 0;  // above 0: pushes with flags go no faster
};

}  // namespace coprime
