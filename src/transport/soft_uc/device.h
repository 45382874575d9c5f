// A software device: how many queue pairs and memory regions there may be, and which there are. Shared by its pairs.
// A device and its pairs belong to one thread; the peers' ends, on devices of their own, may live anywhere.
#pragma once

#include <cstddef>
#include <span>

#include "transport/soft_uc/options.h"

namespace coprime {

class SoftUcDevice {
 public:
  explicit SoftUcDevice(SoftUcOptions options) : options_(std::move(options)) {}
  SoftUcDevice(const SoftUcDevice&) = delete;

  const SoftUcOptions& options() const { return options_; }
  int queue_pairs() const { return queue_pairs_; }
  int regions() const { return regions_; }

  // For SoftUcQueuePair. Error(kLink) when the device has as many as it allows.
  int open_queue_pair();  // how many there were before it, those that are closed among them
  void close_queue_pair() { --queue_pairs_; }
  bool open_region(std::span<const std::byte> memory);  // false: the device refuses this memory
  void close_regions(int count) { regions_ -= count; }

 private:
  const SoftUcOptions options_;
  int queue_pairs_ = 0, queue_pairs_ever_ = 0, regions_ = 0;
};

}  // namespace coprime
