// The exchange of long contributions: many messages each way in windows. For each window both ranks post all its
// receives, cross a barrier, and only then send.
//
// Both lengths are known to both ends. Receives are posted in chains of at most DS4_TP_RDMA_BULK_SLOTS, sends likewise,
// all signaled; a window ends when all its receives and all its sends are complete. Where buffers are not registered,
// a window passes through staging memory: its outgoing half is written only after the peer's barrier, which proves that
// the peer has the whole of the window before it, whatever early completions of sends said; its incoming half is
// copied out before the next window's receives are posted.
//
// Completions carry kBulkTag and the place in the window: one that is out of range, comes twice or has another length
// than expected is a fault.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "gate/flight.h"
#include "gate/pair_fault.h"
#include "gate/pair_port.h"
#include "gate/window_plan.h"

namespace coprime {

struct BulkBuffers {
  std::span<std::byte> in;                       // where the peer's contribution lands: the slot's size
  std::span<std::byte> staging_in, staging_out;  // registered, both or none; none: `in` and all flights are registered
  bool staged() const { return !staging_in.empty(); }
};

class BulkExchange {
 public:
  // Refused ("big gate unavailable or decode window still active") while receives of a decode window are posted, and
  // where the staging memory has no room for one message.
  PairFault begin(const WindowPlan& plan, const BulkBuffers& buffers, const Flight& flight, bool window_active);

  int64_t windows() const { return windows_; }
  int64_t window() const { return window_; }  // in hand; windows() when all are over
  bool over() const { return window_ == windows_; }

  void post_receives(const WindowPlan& plan, const BulkBuffers& buffers, const Flight& flight, PairPort& port);
  Barrier barrier(const Flight& flight) const;

  // After the window's barrier.
  void open_sends(const WindowPlan& plan, const BulkBuffers& buffers, const Flight& flight);
  // As many as may be outstanding; nothing before open_sends().
  void post_sends(const WindowPlan& plan, const BulkBuffers& buffers, const Flight& flight, PairPort& port);

  PairFault on_receive(const WindowPlan& plan, const Flight& flight, const Completion& completion);
  PairFault on_send(const Completion& completion);

  // Ends the window if all of it is complete.
  bool end_window(const WindowPlan& plan, const BulkBuffers& buffers, const Flight& flight);

  std::string text() const;  // "window 2 of 3: receives 17/256, sends 256/256"

 private:
  using SeenMap = std::array<uint64_t, kBulkWindowReceives / 64>;
  static bool test_and_set(SeenMap& seen, uint64_t index);
  // The messages of the window in hand.
  int64_t incoming(const WindowPlan& plan, const Flight& flight) const;
  int64_t outgoing(const WindowPlan& plan, const Flight& flight) const;
  int64_t messages_of_window(const WindowPlan& plan, size_t bytes) const;
  size_t window_begin(const WindowPlan& plan) const;  // in bytes, of either direction

  int64_t depth_ = 0;  // messages of a window
  int64_t windows_ = 0, window_ = 0;
  int64_t to_receive_ = 0, received_ = 0;        // of the window in hand
  int64_t to_send_ = 0, posted_ = 0, sent_ = 0;  // likewise
  uint64_t sends_open_ = 0;
  SeenMap received_map_ = {}, sent_map_ = {};
};

}  // namespace coprime
