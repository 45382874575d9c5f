// The machine that runs the gates of one rank with ONE peer over a queue pair whose messages must meet posted receives.
// A value without I/O: it acts through a PairPort, and is fed with completions and barriers. Deadlines and a peer that
// is gone are the caller's business; timeout_text() and closed_text() say what was being waited for.
//
// Phases (the side channel's barriers are crossed by both ranks together):
//   idle      nothing is posted, nothing is on its way.
//   arming    the receives of the first gates are posted; 0xD1 (decode) or 0xB5 (verify) is being crossed.
//   window    gates: send from the out slot, wait for the peer's. Decode: then post the receive of the gate `lookahead`
//             later (16), in the class that the step's header names for it; verify: post the next gate's receives
//             before sending this one's, to the end of the step.
//   drain     the window's receives that are left over are used up by dummies, which both ranks send after a barrier:
//             0xD0, or the header of the bulk exchange for which the window ends.
//   settling  nothing is posted, some sends are not yet complete.
//   bulk      header 0xB16, then windows (bulk_exchange.h).
//
// A decode window ends when a step goes another way, or when its receives do not fit the step's rows (counted in
// rearms()). It runs out by itself at the end of a step whose successor is announced to go another way.
//
// Invariants: a message is sent only when the receive that it meets is posted (after a barrier, or because the peer's
// last gate proves it); a flight is done only when the peer's whole contribution has arrived, with the length and,
// where tags are carried, the gate that were announced. After a fault nothing is posted and nothing is done any more.
//
// Where tags are carried, a message says its sequence and chunk: one that meets the receive of another, because a
// message between was lost, is a fault. Where they are not, it passes for the earlier one: what the link is trusted for
// there (between Macs nothing arrives after a loss), or what an authenticating pair checks.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "gate/bulk_exchange.h"
#include "gate/flight.h"
#include "gate/pair_fault.h"
#include "gate/pair_port.h"
#include "gate/posted_window.h"
#include "gate/send_ledger.h"
#include "gate/window_plan.h"

namespace coprime {

// The memory of one pair.
struct PairBuffers {
  // Where window gates land, by parity of the sequence: registered, plan.largest_capacity() each.
  std::array<std::span<std::byte>, 2> window_in;
  // By parity, registered, likewise: flights of window gates are copied there and sent from there. Empty: they are sent
  // from where they are, which is registered and has room for the gate's capacity (padded sends read all of it).
  std::array<std::span<std::byte>, 2> window_out;
  // Where bulk lands; may share memory with window_in, since the two are never posted together. Staging memory has the
  // same size at both ends.
  BulkBuffers bulk;
  std::span<std::byte> dummy;  // registered, plan.dummy_bytes(), of any content; never read by anybody
};

class PairMachine {
 public:
  // Both outlive the machine; the buffers are read from the first step on.
  PairMachine(const WindowPlan* plan, const PairBuffers* buffers);

  // A step begins; all its gates come in the schedule's order, with rows of class `now`. `next`: of the step after it.
  // The peer says the same. Not while a flight is on its way.
  void begin_step(RowClass now, RowClass next);

  // The next gate. Its sequence is one more than the last one's. Entries come in order, each once; in a bulk step an
  // entry may come again right after itself. flight.out stays as it is until the flight after this one is done.
  void start(PairPort& port, const Flight& flight);

  void on_completion(PairPort& port, const Completion& completion);
  void on_barrier(PairPort& port, const Barrier& barrier);
  // Whether a barrier of the peer is awaited: only then is the side channel to be read, which keeps what comes early.
  bool wants_barrier() const {
    return phase_ == Phase::kArming || phase_ == Phase::kDrainCrossing || phase_ == Phase::kHeaderCrossing ||
           phase_ == Phase::kBulkCrossing;
  }

  // The flight is done: the peer's contribution is in arrival(), until the next start(); this rank's sends are posted
  // (complete, after bulk).
  bool done() const { return stage_ == Stage::kDone && !fault_; }
  std::span<const std::byte> arrival() const;

  bool failed() const { return static_cast<bool>(fault_); }
  const PairFault& fault() const { return fault_; }
  std::string fault_text() const;    // a sentence of its own; empty while there is no fault
  std::string timeout_text() const;  // "timeout draining RDMA receive window (5/32)", ...
  std::string closed_text() const;   // "peer disconnected while draining RDMA receives", ...

  uint64_t rearms() const { return rearms_; }  // decode windows that ended because a step was not as announced
  uint64_t moved() const { return moved_; }    // counts completions and barriers
  // Of a bulk exchange, counted on: a deadline is renewed when it moves.
  uint64_t bulk_windows() const { return bulk_windows_; }
  bool window_active() const { return phase_ == Phase::kWindow; }
  bool idle() const { return phase_ == Phase::kIdle && sends_.outstanding() == 0; }

 private:
  enum class Phase : uint64_t {
    kIdle,
    kArming,
    kWindow,
    kDrainCrossing,
    kDraining,
    kSettling,
    kHeaderCrossing,
    kBulkCrossing,
    kBulkMoving,
  };
  enum class Stage : uint64_t { kNone, kWaiting, kSent, kDone };

  void check_buffers() const;
  void advance(PairPort& port);
  bool step(PairPort& port);  // one transition; whether there was one

  void arm(PairPort& port);
  bool run_window(PairPort& port);
  void send_gate(PairPort& port, const WindowPlan::Gate& gate);
  void leave_window(PairPort& port);
  bool drain(PairPort& port);
  void send_dummies(PairPort& port);
  void cross(PairPort& port, Phase phase, const Barrier& barrier);
  void begin_bulk(PairPort& port);
  bool run_bulk(PairPort& port);
  void open_bulk_window(PairPort& port);

  PairFault receive(const Completion& completion);
  PairFault sent(const Completion& completion);
  Service service() const { return plan_->service(now_); }
  void fail_with(const PairFault& fault) { fault_ = fault; }
  std::string gate_text_of(const Flight& flight) const;

  const WindowPlan* plan_;
  const PairBuffers* buffers_;
  Phase phase_ = Phase::kIdle;
  Stage stage_ = Stage::kNone;
  Flight flight_;     // the last one that was started
  Barrier awaited_;   // while wants_barrier()
  int64_t position_;  // entry of the step that comes next; entries(): none
  RowClass now_ = RowClass::kBulk, next_ = RowClass::kBulk;
  uint64_t stale_ = 0;           // the window is to be left before the next flight
  uint64_t header_crossed_ = 0;  // the bulk exchange's, when it ended a window
  PostedWindow window_;
  SendLedger sends_;
  uint64_t drained_from_ = 0;              // the last gate of the window that is being drained
  uint64_t dummy_gate_ = 0, dummies_ = 0;  // the gate whose receives the next dummy meets; dummies that were sent
  int64_t dummy_chunk_ = 0;
  BulkExchange bulk_;
  uint64_t rearms_ = 0, moved_ = 0, bulk_windows_ = 0;
  PairFault fault_;
};

}  // namespace coprime
