// One gate on its way to and from one peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace coprime {

struct Flight {
  uint64_t sequence = 0;  // of the exchange: every gate of the world counts
  int entry = 0;          // of the schedule
  uint32_t tag = 0;       // which gate, in a word
  std::span<std::byte> out;
  size_t headroom = 0;  // bytes before `out` that nobody reads
  size_t incoming = 0;  // bytes that the peer sends
};

}  // namespace coprime
