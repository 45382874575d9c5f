// One gate's movement of bytes between the ranks of a world, whatever the link: every rank publishes one contribution
// and sees all of them, in rank order. Owns the slots and the sequence number. Nothing is ever returned after a
// deadline has passed: wait() throws Error(kLink) naming rank, peer, layer, gate, sequence and link, and every later
// call throws the same.
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

  // Publishes to each peer its own part of the slot: rank r gets bytes [ends[r - 1], ends[r]), rank 0 from 0.
  virtual void scatter(const GateEntry& entry, std::span<const size_t> ends) = 0;

  // All ranks' contributions to this rank in rank order (its own among them), valid until release(). Peers may have
  // sent other lengths: views[r].size() is what rank r published. The next gate's out() may be called and written
  // before release().
  virtual std::span<const std::span<const std::byte>> wait() = 0;

  virtual void release() = 0;
  virtual const char* link() const = 0;  // "shm", "tcp", "none"
};

}  // namespace coprime
