#include "transport/staging_slots.h"

#include "base/check.h"
#include "base/error.h"

namespace coprime {

StagingSlots::StagingSlots(size_t slots, size_t slot_bytes, Order order)
    : bytes_(slots * slot_bytes), memory_(std::make_unique_for_overwrite<std::byte[]>(bytes_)), order_(order) {
  for (size_t slot = 0; slot < slots; ++slot) free_.push_back(memory_.get() + slot * slot_bytes);
}

void StagingSlots::register_with(QueuePair& pair) {
  if (pair.register_memory({memory_.get(), bytes_})) return;
  fail(ErrorKind::kLink, "{} refuses {} bytes of memory for staging: choose another link", pair.name(), bytes_);
}

std::byte* StagingSlots::take() {
  COPRIME_CHECK(!free_.empty(), "all slots are taken");
  std::byte* const slot = order_ == Order::kOldest ? free_.front() : free_.back();
  order_ == Order::kOldest ? free_.pop_front() : free_.pop_back();
  return slot;
}

void StagingSlots::give_back(std::byte* slot) { free_.push_back(slot); }

}  // namespace coprime
