// One rank's side of the gates that it shares with one peer over a queue pair. Two kinds: a stream, where messages wait
// for their receives (stream_link.cpp), and a window of receives posted ahead, where they do not (window_link.cpp).
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "gate/flight.h"
#include "gate/schedule.h"
#include "transport/queue_pair.h"
#include "transport/side_channel.h"

namespace coprime {

class PeerLink {
 public:
  virtual ~PeerLink() = default;

  virtual void begin_step(int rows, int next_rows) = 0;
  virtual void start(const Flight& flight) = 0;

  // Makes progress; whether the peer's contribution is there and this rank's is on its way. False for ever once the
  // link failed.
  virtual bool done() = 0;

  struct Arrival {
    std::span<const std::byte> bytes;
    uint32_t tag = 0;
  };
  // Of the flight that is done, valid until released().
  virtual Arrival arrival() const = 0;
  virtual void released() = 0;

  virtual bool peer_closed() { return false; }  // looks for it, where done() would not notice
  virtual uint64_t moved() const = 0;           // counts up while messages are on their way

  // Descriptors on which to sleep until done() may have news; at most two. Returns how many.
  virtual int wait_on(std::span<pollfd> into) const = 0;
  virtual bool can_sleep() const { return true; }  // false: news may come without an event on a descriptor
  virtual const char* name() const = 0;
  virtual std::string waiting_for() const { return {}; }  // beyond the peer's contribution, for messages
  virtual uint64_t rearms() const { return 0; }
  virtual const std::string& failure() const = 0;  // empty, or to be read after "rank 2 "
};

// Where a pair keeps messages until there is a receive, and takes them whole with their gate's tag. Slots of
// slot_bytes.
bool suits_stream_link(const QueuePairLimits& limits, size_t slot_bytes);
std::unique_ptr<PeerLink> make_stream_link(std::unique_ptr<QueuePair> pair, size_t slot_bytes,
                                           std::span<std::byte> out_slots);

// For every other pair. `out_slots` is the memory from which flights send.
std::unique_ptr<PeerLink> make_window_link(std::unique_ptr<QueuePair> pair, SideChannel side,
                                           const GateSchedule& schedule, std::span<std::byte> out_slots);

}  // namespace coprime
