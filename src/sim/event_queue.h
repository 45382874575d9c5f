// Events in the order (time, kind, component, sequence): total, and the same whatever compiler, container or thread.
// The kinds stand in the order of their priority: all that ends at a tick does so before an engine chooses what is
// next.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "sim/chip.h"

namespace coprime::sim {

enum class EventKind : uint8_t {
  kLoop,      // the head of a loop's iteration; component: the PE
  kReceived,  // the receive that a CPU waits for; component: the channel
  kSent,      // a message has left; component: the port
  kDmaEnd,    // components from here on: the PE
  kGemmEnd,   // of a sub-tile
  kDrained,   // a composite's result is there
  kMathEnd,
  kStart,      // the kernel begins, or goes on behind iterations that were accounted for
  kHop,        // a packet comes to its next link; component: the packet
  kPort,       // a port has a packet for its first link; component: the port
  kDmaChoice,  // an engine that several queues share chooses
  kGemmChoice,
  kMathChoice,
};
inline constexpr size_t kEventKinds = 13;
inline constexpr std::array<std::string_view, kEventKinds> kEventKindNames = {
    "loop",  "received", "sent", "dma_end",    "gemm_end",    "drained",    "math_end",
    "start", "hop",      "port", "dma_choice", "gemm_choice", "math_choice"};

struct Event {
  Tick time = 0;
  uint64_t order = 0;  // kind in 6 bits, component in 26, sequence in 32

  EventKind kind() const { return static_cast<EventKind>(order >> 58); }
  uint32_t component() const { return static_cast<uint32_t>(order >> 32) & 0x3ff'ffff; }
  uint32_t sequence() const { return static_cast<uint32_t>(order); }
  bool operator<(const Event& other) const { return time != other.time ? time < other.time : order < other.order; }
};

constexpr Event event_of(Tick time, EventKind kind, uint32_t component, uint32_t sequence) {
  return {time, uint64_t{static_cast<uint8_t>(kind)} << 58 | uint64_t{component} << 32 | sequence};
}

// A heap in which each event has four below it.
class EventQueue {
 public:
  bool empty() const { return heap_.empty(); }
  size_t size() const { return heap_.size(); }
  uint32_t next_sequence() const { return sequence_; }

  void push(Tick time, EventKind kind, uint32_t component) {
    const Event event = event_of(time, kind, component, sequence_++);
    size_t at = heap_.size();
    heap_.push_back(event);
    while (at > 0) {
      const size_t above = (at - 1) / 4;
      if (!(event < heap_[above])) break;
      heap_[at] = heap_[above];
      at = above;
    }
    heap_[at] = event;
  }

  Event pop() {
    const Event first = heap_.front(), last = heap_.back();
    heap_.pop_back();
    const size_t size = heap_.size();
    if (size == 0) return first;
    size_t at = 0;
    for (;;) {
      const size_t below = at * 4 + 1;
      if (below >= size) break;
      size_t least = below;
      for (size_t i = below + 1, end = std::min(below + 4, size); i < end; ++i)
        least = heap_[i] < heap_[least] ? i : least;
      if (!(heap_[least] < last)) break;
      heap_[at] = heap_[least];
      at = least;
    }
    heap_[at] = last;
    return first;
  }

 private:
  std::vector<Event> heap_;
  uint32_t sequence_ = 0;
};

}  // namespace coprime::sim
