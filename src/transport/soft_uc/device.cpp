#include "transport/soft_uc/device.h"

#include "base/error.h"

namespace coprime {

int SoftUcDevice::open_queue_pair() {
  if (queue_pairs_ >= options_.max_queue_pairs) {
    fail(ErrorKind::kLink, "a queue pair cannot be created: the device has the {} that it allows: use fewer peers",
         queue_pairs_);
  }
  ++queue_pairs_;
  return queue_pairs_ever_++;
}

bool SoftUcDevice::open_region(std::span<const std::byte> memory) {
  if (options_.refuses_memory && options_.refuses_memory(memory)) return false;
  if (regions_ >= options_.max_regions) {
    fail(ErrorKind::kLink,
         "memory cannot be registered: the device has the {} regions that it allows: register fewer and larger ones",
         regions_);
  }
  ++regions_;
  return true;
}

}  // namespace coprime
