#include "transport/shm/shm_region.h"

#include <cstring>
#include <limits>
#include <new>

#include "base/alignment.h"
#include "base/check.h"
#include "base/error.h"

namespace coprime {
namespace {
constexpr uint64_t kMagic = 0x3057444e49574843;
constexpr std::string_view kWhat = "the shared window";
constexpr std::string_view kAdvice = "use a smaller --prefill-chunk or fewer ranks";
}  // namespace

// The region is a header, the bell, the ranks' controls, and from the next page on the slots:
// [rank][parity][slot_bytes].
struct ShmRegion::Header {
  uint64_t magic, ranks, slot_bytes;
};

namespace {
constexpr size_t kBellOffset = 128;
constexpr size_t kControlsOffset = kBellOffset + sizeof(ShmRegion::Bell);
constexpr size_t kSlotsOffset = round_up(kControlsOffset + kMaxRanks * sizeof(ShmRegion::RankControl), kPageBytes);
}  // namespace

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

size_t ShmRegion::region_bytes(int ranks, size_t slot_bytes) {
  COPRIME_CHECK(ranks >= 1 && ranks <= kMaxRanks, "{} ranks", ranks);
  constexpr size_t kMost = static_cast<size_t>(std::numeric_limits<int64_t>::max());
  const size_t slots = 2 * static_cast<size_t>(ranks);
  if (slot_bytes > (kMost - kSlotsOffset) / slots - kPageBytes) {
    fail(ErrorKind::kUsage, "{} would have slots of {} bytes: {}", kWhat, slot_bytes, kAdvice);
  }
  return kSlotsOffset + slots * round_up(slot_bytes, kPageBytes);
}

ShmRegion ShmRegion::create(int ranks, size_t slot_bytes) {
  COPRIME_CHECK(slot_bytes > 0);
  const size_t bytes = region_bytes(ranks, slot_bytes), rounded = round_up(slot_bytes, kPageBytes);
  ShmRegion region(SharedMemory::create(kWhat, bytes, kAdvice), ranks, rounded);
  new (region.memory_.data()) Header{kMagic, static_cast<uint64_t>(ranks), rounded};
  return region;
}

ShmRegion ShmRegion::attach(UniqueFd fd) {
  SharedMemory memory = SharedMemory::attach(kWhat, std::move(fd));
  const size_t bytes = memory.size();
  Header header = {};
  if (bytes >= kSlotsOffset) std::memcpy(&header, memory.data(), sizeof header);
  const bool known = header.magic == kMagic && header.ranks >= 1 && header.ranks <= kMaxRanks &&
                     header.slot_bytes >= kPageBytes && header.slot_bytes <= bytes &&
                     header.slot_bytes % kPageBytes == 0 &&
                     region_bytes(static_cast<int>(header.ranks), header.slot_bytes) == bytes;
  if (!known) {
    fail(ErrorKind::kLink, "descriptor {} is no shared window of this program: start front and ranks from one build",
         memory.fd());
  }
  return {std::move(memory), static_cast<int>(header.ranks), header.slot_bytes};
}

// Zeroed memory: sequence 0 is published, nobody sleeps.
ShmRegion::RankControl& ShmRegion::control(int rank) const {
  return reinterpret_cast<RankControl*>(memory_.data() + kControlsOffset)[rank];
}

ShmRegion::Bell& ShmRegion::bell() const { return *reinterpret_cast<Bell*>(memory_.data() + kBellOffset); }

std::byte* ShmRegion::slot(int rank, int parity) const {
  return memory_.data() + kSlotsOffset + (2 * static_cast<size_t>(rank) + static_cast<size_t>(parity)) * slot_bytes();
}

}  // namespace coprime
