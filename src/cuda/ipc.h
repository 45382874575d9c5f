// A GPU's memory in another process: what a rank says of its allocation, and how a peer reaches it.
//
// Within one process a pointer is enough (an exporter may not open its own handle); between processes the handle is
// opened, which maps the whole allocation.
#pragma once

#include <cstdint>
#include <utility>

#include "cuda/memory.h"

namespace coprime {

// Sent as it is to ranks of the same host.
struct MemoryOffer {
  int64_t process = 0;
  int device = 0;  // as its owner counts
  std::byte* address = nullptr;
  uint64_t bytes = 0;
  cudaIpcMemHandle_t handle = {};
};

MemoryOffer offer_memory(const DeviceMemory& memory);

class PeerMemory {
 public:
  PeerMemory() = default;
  // Error(kLink) when this device cannot reach that memory.
  explicit PeerMemory(const MemoryOffer& offer);
  PeerMemory(PeerMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), opened_(std::exchange(other.opened_, false)) {}
  PeerMemory& operator=(PeerMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(opened_, other.opened_);
    return *this;
  }
  ~PeerMemory() {
    if (opened_) cudaIpcCloseMemHandle(data_);
  }

  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  bool opened_ = false;
};

}  // namespace coprime
