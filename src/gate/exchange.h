// One gate's movement of bytes between the ranks of a world, whatever the link: every rank publishes one contribution and sees
// all of them, in rank order. Owns the slots and the sequence number. Nothing is ever returned after a deadline has passed:
// wait() throws Error(kLink) naming rank, peer, layer, gate, sequence and link, and every later call throws the same.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "gate/schedule.h"

namespace coprime {

class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // This rank's outgoing slot for the next gate: at least `bytes`, aligned to 64.
  virtual std::span<std::byte> out(size_t bytes) = 0;

  // Sends the slot's first `bytes` to all peers. `entry` names the gate in errors.
  virtual void publish(const GateEntry& entry, size_t bytes) = 0;

  // All ranks' contributions in rank order (this rank's own among them), valid until release(). Peers may have sent other
  // lengths: views[r].size() is what rank r published.
  virtual std::span<const std::span<const std::byte>> wait() = 0;

  virtual void release() = 0;
  virtual const char* link() const = 0;  // "shm", "tcp", "none"
};

}  // namespace coprime
