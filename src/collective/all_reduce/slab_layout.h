// Where things lie in a rank's slab: the memory that its peers push into, and what it keeps beside it. Pure.
//
//   control    counters of the rank alone, and the abort word that any rank may write
//   flags      [half][sender][block of kFlagBlockBytes], 32 bits each, 32 bytes apart
//   payload    [half][sender] slots of slot_bytes; a slot holds one vector, or its wht6 form (codes from 0, scales from
//              slot_bytes / 2)
//   own codes  this rank's wht6 codes and f32 scales, when the world is lossy
//
// The place of an element depends on half, sender and element alone, never on a grid. The sender's index leaves out the
// receiver: sender i is at i - (i > receiver).
#pragma once

#include <cstddef>
#include <cstdint>

namespace coprime {

inline constexpr int kMaxGpuRanks = 8;
inline constexpr int64_t kFlagBlockBytes = 16 * 1024;  // of the vector, whatever its form on the wire
inline constexpr int64_t kFlagStride = 32;
inline constexpr int64_t kControlBytes = 4096;

struct SlabLayout {
  int world = 0;
  int64_t slot_bytes = 0;
  bool lossy = false;

  constexpr int64_t flags_per_slot() const { return slot_bytes / kFlagBlockBytes; }
  constexpr int64_t flag(int half, int sender_index, int64_t block) const {
    return kControlBytes + ((int64_t{half} * (world - 1) + sender_index) * flags_per_slot() + block) * kFlagStride;
  }
  constexpr int64_t payload_begin() const {
    return (flag(2, 0, 0) + kControlBytes - 1) / kControlBytes * kControlBytes;
  }
  constexpr int64_t slot(int half, int sender_index) const {
    return payload_begin() + (int64_t{half} * (world - 1) + sender_index) * slot_bytes;
  }
  constexpr int64_t own_codes() const { return slot(2, 0); }
  constexpr int64_t own_scales() const { return own_codes() + slot_bytes / 2; }
  // What grows with the slots, which a planner subtracts from a GPU's memory: 2 (world - 1) slots, and the lossy form's
  // own copy of slot_bytes / 2 + slot_bytes / 32 + 4096. 381 MiB at three ranks and slots of 84 MiB.
  constexpr int64_t payload_bytes() const {
    const int64_t slots = 2 * (world - 1) * slot_bytes;
    return lossy ? slots + slot_bytes / 2 + slot_bytes / 32 + 4096 : slots;
  }
  constexpr int64_t bytes() const { return payload_begin() + payload_bytes(); }  // of the whole slab
};

constexpr int sender_index(int sender, int receiver) { return sender - (sender > receiver ? 1 : 0); }

// Error(kUsage) for a world that is not 2 to kMaxGpuRanks, and for slots that are no multiple of 64 KiB or overflow.
SlabLayout make_slab_layout(int world, int64_t slot_bytes, bool lossy);

}  // namespace coprime
