#include "collective/all_reduce/slab_layout.h"

#include "base/error.h"

namespace coprime {
namespace {

constexpr int64_t kLargestSlot = int64_t{1} << 36;

constexpr int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

int64_t SlabLayout::flag(int half, int sender, int64_t block) const {
  return flags_begin() + ((int64_t{half} * (world - 1) + sender) * flags_per_slot() + block) * kFlagStride;
}

int64_t SlabLayout::payload_begin() const {
  return round_up(flags_begin() + 2 * (world - 1) * flags_per_slot() * kFlagStride, kControlBytes);
}

int64_t SlabLayout::slot(int half, int sender) const {
  return payload_begin() + (int64_t{half} * (world - 1) + sender) * slot_bytes;
}

int64_t SlabLayout::own_codes() const { return payload_begin() + 2 * (world - 1) * slot_bytes; }

int64_t SlabLayout::bytes() const { return payload_begin() + payload_bytes(*this); }

SlabLayout make_slab_layout(int world, int64_t slot_bytes, bool lossy) {
  if (world < 2 || world > kMaxGpuRanks)
    fail(ErrorKind::kUsage, "GPU ranks: expected 2 to {}, found {}", kMaxGpuRanks, world);
  if (slot_bytes <= 0 || slot_bytes % kFlagBlockBytes != 0 || slot_bytes > kLargestSlot) {
    fail(ErrorKind::kUsage, "slots of an all-reduce: expected a multiple of {} KiB up to 64 GiB, found {} bytes",
         kFlagBlockBytes / 1024, slot_bytes);
  }
  return {world, slot_bytes, lossy};
}

int64_t payload_bytes(const SlabLayout& layout) {
  const int64_t slots = 2 * (layout.world - 1) * layout.slot_bytes;
  return layout.lossy ? slots + layout.slot_bytes / 2 + layout.slot_bytes / 32 + 4096 : slots;
}

}  // namespace coprime
