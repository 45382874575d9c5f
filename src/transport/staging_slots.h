// Slots of one size in memory that a queue pair has registered.
//
// A slot that was given back may still be read by a device that completes sends before it has read their bytes. Taken
// in turn (kOldest), it is taken again only after all the others were: who never has more messages unconfirmed by the
// peer than there are slots is safe. Where no device does that, kNewest touches the least memory.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>

#include "transport/queue_pair.h"

namespace coprime {

class StagingSlots {
 public:
  enum class Order : uint8_t { kOldest, kNewest };

  StagingSlots(size_t slots, size_t slot_bytes, Order order);

  // Error(kLink) when the pair refuses the memory. The pair must end before the slots do.
  void register_with(QueuePair& pair);

  std::byte* take();  // none is left: a broken invariant
  void give_back(std::byte* slot);

 private:
  size_t bytes_;
  std::unique_ptr<std::byte[]> memory_;  // pages are committed when first touched
  std::deque<std::byte*> free_;          // given back at the end
  Order order_;
};

}  // namespace coprime
