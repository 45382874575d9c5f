#include "collective/all_reduce/slab_layout.h"

#include "base/error.h"

namespace coprime {
namespace {

constexpr int64_t kLargestSlot = int64_t{1} << 36;

}  // namespace

SlabLayout make_slab_layout(int world, int64_t slot_bytes, bool lossy) {
  if (world < 2 || world > kMaxGpuRanks)
    fail(ErrorKind::kUsage, "GPU ranks: expected 2 to {}, found {}", kMaxGpuRanks, world);
  if (slot_bytes <= 0 || slot_bytes % kFlagBlockBytes != 0 || slot_bytes > kLargestSlot) {
    fail(ErrorKind::kUsage, "slots of an all-reduce: expected a multiple of {} KiB up to 64 GiB, found {} bytes",
         kFlagBlockBytes / 1024, slot_bytes);
  }
  return {world, slot_bytes, lossy};
}

}  // namespace coprime
