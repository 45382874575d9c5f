// One rank's end of a shared window: it publishes its slot, sees its peers', and sleeps until they are there.
//
// Protocol (the gate/ layer keeps it; sequences start at 1 and grow by 1): for each sequence s a rank writes slot(s),
// publishes s, waits until every peer has published s, reads the peers' slots of s, and only then publishes s + 1. It
// may write slot(s + 1) as soon as its wait for s is over.
//
// Why two slots suffice. slot(s + 1) shares its memory with slot(s - 1). A rank that writes it has seen s published by
// every peer, and a peer publishes s after its last read of any slot(s - 1): nobody reads what is overwritten. A rank
// that reads slot(s) of a peer has not published s + 1, so that the peer cannot have finished its wait for s + 1, and
// has not begun to write slot(s + 2), the next user of that memory. The same holds for SlotHeader and part_ends, which
// have the same parity. So a peer leads by one gate at most, and seen(peer) is s or s + 1 while a rank reads s.
//
// Orderings. `published` is stored with release order at least, and loaded with acquire order: a reader of s has the
// slot's bytes and header (written before the store), and the writer of s + 1 has the peers' reads of s - 1 behind it
// (made before their stores of s, which it loaded).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/shm/shm_region.h"

namespace coprime {

class Window {
 public:
  Window(std::shared_ptr<const ShmRegion> region, int rank);

  int rank() const { return rank_; }
  int ranks() const { return region_->ranks(); }
  size_t slot_bytes() const { return slot_bytes_; }

  std::span<std::byte> slot(uint64_t sequence) { return {region_->slot(rank_, sequence & 1), slot_bytes_}; }

  // Where the header of the sequence's publication, and the ends of its parts, are written before it is published.
  SlotHeader& header(uint64_t sequence) { return region_->control(rank_).headers[sequence & 1]; }
  std::span<uint64_t> part_ends(uint64_t sequence) { return region_->control(rank_).part_ends[sequence & 1]; }

  // Makes slot, header and part ends visible to all; the last rank to publish a sequence wakes those that sleep.
  void publish(uint64_t sequence);

  // Whether the peer has published the sequence; if so its slot, header and ends may be read until this rank publishes
  // the next.
  bool seen(int peer, uint64_t sequence) const {
    return region_->control(peer).published.load(std::memory_order_acquire) >= sequence;
  }
  const std::byte* peer_slot(int peer, uint64_t sequence) const { return region_->slot(peer, sequence & 1); }
  const SlotHeader& peer_header(int peer, uint64_t sequence) const {
    return region_->control(peer).headers[sequence & 1];
  }
  std::span<const uint64_t> peer_part_ends(int peer, uint64_t sequence) const {
    return region_->control(peer).part_ends[sequence & 1];
  }

  // Sleeps until all ranks have published the sequence, or somebody rings, or timeout_us has passed. May return early:
  // the caller looks again.
  void sleep(uint64_t sequence, int64_t timeout_us);

  // Wakes every rank that sleeps.
  void ring();

 private:
  bool all_published(uint64_t sequence) const;

  std::shared_ptr<const ShmRegion> region_;
  int rank_;
  size_t slot_bytes_;
};

}  // namespace coprime
