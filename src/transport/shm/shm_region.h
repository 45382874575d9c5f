// The memory of a shared window: for each of the ranks that share it (places in a group, where the world spans hosts)
// its publications and two slots of equal size, and one bell for all. One process creates it, the others attach. It
// knows the layout and nothing of the protocol: that is Window's. The layout is read once, when the region is attached:
// what peers write later cannot change it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/progress_page.h"
#include "transport/shared_memory.h"

namespace coprime {

// What a rank says about one publication.
struct SlotHeader {
  uint64_t bytes = 0;
  uint32_t tag = 0;  // which gate; bit 31: in parts, see RankControl::part_ends
  uint32_t epoch = 0;
};

class ShmRegion {
 public:
  // Two slots of slot_bytes (rounded up to a page) for each rank. Error(kUsage) "the shared window needs X MiB, Y MiB
  // are available: ..." when the memory is not there.
  static ShmRegion create(int ranks, size_t slot_bytes);
  static ShmRegion attach(UniqueFd fd);  // Error(kLink) when the descriptor is no such region

  static size_t region_bytes(int ranks, size_t slot_bytes);  // Error(kUsage) when it overflows

  int fd() const { return memory_.fd(); }
  int ranks() const { return ranks_; }
  size_t slot_bytes() const { return slot_bytes_; }

  // One rank's words. Lines are 128 bytes apart, since processors fetch them in pairs.
  struct RankControl {
    // Written by the rank alone, read by all.
    alignas(128) std::atomic<uint64_t> published;  // the last sequence whose slot is complete
    SlotHeader headers[2];                         // by parity of the sequence
    alignas(128) uint64_t part_ends[2][kMaxRanks];
  };
  RankControl& control(int rank) const;

  // The bell that wakes all sleepers at once. Written by all.
  struct Bell {
    alignas(128) std::atomic<uint32_t> sleepers;  // one bit a rank
    std::atomic<uint32_t> rings;                  // the word that they sleep on
  };
  Bell& bell() const;
  std::byte* slot(int rank, int parity) const;

 private:
  struct Header;
  ShmRegion(SharedMemory memory, int ranks, size_t slot_bytes)
      : memory_(std::move(memory)), ranks_(ranks), slot_bytes_(slot_bytes) {}
  SharedMemory memory_;
  int ranks_;
  size_t slot_bytes_;
};

}  // namespace coprime
