#include "gate/pair_machine.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/check.h"

namespace coprime {

static_assert(std::is_trivially_copyable_v<PairMachine>);

PairMachine::PairMachine(const WindowPlan* plan, const PairBuffers* buffers)
    : plan_(plan), buffers_(buffers), position_(plan->entries()) {}

void PairMachine::check_buffers() const {
  for (const auto& in : buffers_->window_in) {
    COPRIME_CHECK(in.size() >= plan_->largest_capacity(), "{} bytes in, {} needed", in.size(),
                  plan_->largest_capacity());
  }
  COPRIME_CHECK(buffers_->dummy.size() >= plan_->dummy_bytes(), "a dummy of {} bytes, {} needed",
                buffers_->dummy.size(), plan_->dummy_bytes());
}

void PairMachine::begin_step(RowClass now, RowClass next) {
  if (failed()) return;
  if (stage_ == Stage::kNone) check_buffers();
  COPRIME_CHECK(stage_ == Stage::kNone || stage_ == Stage::kDone, "a step begins while a flight is on its way");
  if (position_ != plan_->entries()) {
    const bool verify = phase_ == Phase::kWindow && window_.verifies();
    return fail_with({.kind = verify ? PairFaultKind::kVerifyIncomplete : PairFaultKind::kStepIncomplete,
                      .id = flight_.sequence,
                      .found = static_cast<uint64_t>(position_),
                      .expected = static_cast<uint64_t>(plan_->entries())});
  }
  now_ = now;
  next_ = next;
  position_ = 0;
  if (phase_ != Phase::kWindow) return;
  const uint64_t first = flight_.sequence + 1;
  if (window_.posted() < first) {
    stale_ = 1;  // it ran out, as announced
  } else if (!window_.enter_step(*plan_, first, now, next)) {
    stale_ = 1;
    ++rearms_;
  }
}

void PairMachine::start(PairPort& port, const Flight& flight) {
  if (failed()) return;
  COPRIME_CHECK(stage_ == Stage::kNone || stage_ == Stage::kDone, "a flight starts while another is on its way");
  const bool bulk = service() == Service::kBulk;
  const bool again = bulk && position_ > 0 && flight.entry == position_ - 1;
  const bool in_order = position_ < plan_->entries() && flight.entry == position_;
  if (flight.sequence != flight_.sequence + 1 || !(in_order || again)) {
    return fail_with({.kind = PairFaultKind::kGateOrder,
                      .id = flight.sequence,
                      .found = static_cast<uint64_t>(flight.entry),
                      .expected = static_cast<uint64_t>(position_)});
  }
  if (!bulk) {
    const size_t capacity = plan_->gate(flight.entry, now_).capacity;
    COPRIME_CHECK(flight.out.size() <= capacity && flight.incoming <= capacity, "{} bytes out, {} in, room for {}",
                  flight.out.size(), flight.incoming, capacity);
  }
  flight_ = flight;
  position_ = flight.entry + 1;
  stage_ = Stage::kWaiting;
  advance(port);
}

void PairMachine::on_completion(PairPort& port, const Completion& completion) {
  if (failed()) return;
  ++moved_;
  const bool send = completion.kind == Completion::Kind::kSend;
  if (completion.status != 0) [[unlikely]] {
    return fail_with({.kind = send ? PairFaultKind::kSendStatus : PairFaultKind::kReceiveStatus,
                      .id = completion.id,
                      .found = completion.status});
  }
  if (const PairFault fault = send ? sent(completion) : receive(completion)) [[unlikely]]
    return fail_with(fault);
  advance(port);
}

PairFault PairMachine::receive(const Completion& completion) {
  switch (phase_) {
    case Phase::kArming:
    case Phase::kWindow:
      // The peer sends gate s + 1 when it has s from this rank: it leads the last flight by one gate at most.
      return window_.on_receive(*plan_, completion, flight_.sequence + 1);
    case Phase::kDrainCrossing:
    case Phase::kDraining:
      return window_.on_dummy(*plan_, completion);
    case Phase::kBulkCrossing:
    case Phase::kBulkMoving:
      return bulk_.on_receive(*plan_, flight_, completion);
    case Phase::kIdle:
    case Phase::kSettling:
    case Phase::kHeaderCrossing:
      break;
  }
  return {.kind = PairFaultKind::kUnexpectedReceive, .id = completion.id};
}

PairFault PairMachine::sent(const Completion& completion) {
  if (phase_ == Phase::kBulkMoving) return bulk_.on_send(completion);
  return sends_.on_send(completion);
}

void PairMachine::on_barrier(PairPort& port, const Barrier& barrier) {
  if (failed()) return;
  ++moved_;
  if (!wants_barrier()) return fail_with({.kind = PairFaultKind::kUnexpectedBarrier, .crossed = barrier});
  if (barrier != awaited_) return fail_with({.kind = PairFaultKind::kBarrier, .crossed = barrier, .awaited = awaited_});
  switch (phase_) {
    case Phase::kArming:
      phase_ = Phase::kWindow;
      break;
    case Phase::kDrainCrossing:
      phase_ = Phase::kDraining;
      break;
    case Phase::kHeaderCrossing:
      begin_bulk(port);
      break;
    default:  // kBulkCrossing
      phase_ = Phase::kBulkMoving;
      bulk_.open_sends(*plan_, buffers_->bulk, flight_);
      break;
  }
  advance(port);
}

void PairMachine::advance(PairPort& port) {
  while (!failed() && step(port)) {
  }
}

bool PairMachine::step(PairPort& port) {
  switch (phase_) {
    case Phase::kIdle:
      if (stage_ != Stage::kWaiting) return false;
      if (service() != Service::kBulk) {
        arm(port);
      } else {
        cross(port, Phase::kHeaderCrossing,
              {kBulkHeader, flight_.tag, flight_.sequence, flight_.out.size() + flight_.incoming});
      }
      return true;
    case Phase::kWindow:
      return run_window(port);
    case Phase::kDraining:
      return drain(port);
    case Phase::kSettling:
      if (sends_.outstanding() > 0) return false;
      phase_ = Phase::kIdle;
      return true;
    case Phase::kBulkMoving:
      return run_bulk(port);
    case Phase::kArming:
    case Phase::kDrainCrossing:
    case Phase::kHeaderCrossing:
    case Phase::kBulkCrossing:
      break;
  }
  return false;
}

// Sends this rank's side of a barrier, and waits for the same from the peer.
void PairMachine::cross(PairPort& port, Phase phase, const Barrier& barrier) {
  awaited_ = barrier;
  phase_ = phase;
  port.send_barrier(barrier);
}

void PairMachine::arm(PairPort& port) {
  const bool verify = service() == Service::kVerifyWindow;
  const uint64_t first = flight_.sequence;
  window_.open(first - static_cast<uint64_t>(flight_.entry), first, now_, next_, verify ? kVerifyTag : 0);
  window_.post_until(*plan_, buffers_->window_in, port, verify ? first : first + plan_->lookahead() - 1);
  sends_.open(first);
  stale_ = 0;
  cross(port, Phase::kArming,
        {verify ? kVerifyBarrier : kDecodeBarrier, flight_.tag, first, window_.posted_bytes(*plan_)});
}

bool PairMachine::run_window(PairPort& port) {
  const uint64_t sequence = flight_.sequence;
  if (stage_ == Stage::kWaiting) {
    if (stale_ != 0) {
      leave_window(port);
      return true;
    }
    const WindowPlan::Gate& gate = window_.gate(*plan_, sequence);
    if (sends_.outstanding() + gate.chunks > plan_->send_messages()) return false;
    // The peer sends the gate after this one when it has this one: the receives stand before that in any case.
    if (window_.verifies()) window_.post_until(*plan_, buffers_->window_in, port, sequence + 1);
    send_gate(port, gate);
    stage_ = Stage::kSent;
  }
  if (stage_ != Stage::kSent || window_.done() < sequence) return false;
  if (const PairFault fault = window_.check(*plan_, flight_)) {
    fail_with(fault);
    return false;
  }
  stage_ = Stage::kDone;
  if (!window_.verifies()) window_.post_until(*plan_, buffers_->window_in, port, sequence + plan_->lookahead());
  return false;
}

void PairMachine::send_gate(PairPort& port, const WindowPlan::Gate& gate) {
  constexpr int64_t kChain = 4;
  const size_t parity = flight_.sequence & 1;
  std::byte* data = flight_.out.data();
  if (!buffers_->window_out[parity].empty()) {
    data = buffers_->window_out[parity].data();
    if (!flight_.out.empty()) std::memcpy(data, flight_.out.data(), flight_.out.size());
  }
  const size_t cap = plan_->chunk_bytes();
  std::array<WorkRequest, kChain> chain;
  for (int64_t first = 0; first < gate.chunks; first += kChain) {
    const int64_t count = std::min(kChain, gate.chunks - first);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t chunk = first + i;
      const Piece room = chunk_at(gate.capacity, cap, chunk);
      const Piece content = chunk_at(flight_.out.size(), cap, chunk);
      WorkRequest& request = chain[static_cast<size_t>(i)];
      request.id = SendLedger::gate_send_id(flight_.sequence, gate.chunks - 1 - chunk);
      request.data = data + room.begin;
      request.bytes = message_bytes(content.bytes, room.bytes, plan_->limits());
      request.tag = chunk_tag(flight_.tag, flight_.sequence, chunk);
      request.label = chunk_label(flight_.sequence, chunk);
    }
    sends_.posted(count);
    port.post_send({chain.data(), static_cast<size_t>(count)});
  }
}

// A window that has run out, or a verify window at its end, needs no dummies and no barrier: nothing is posted.
void PairMachine::leave_window(PairPort& port) {
  const uint64_t last = flight_.sequence - 1;
  if (window_.posted() == last) {
    phase_ = Phase::kSettling;
    return;
  }
  drained_from_ = last;
  dummy_gate_ = last + 1;
  dummy_chunk_ = 0;
  dummies_ = 0;
  sends_.open_dummies();
  const bool bulk = service() == Service::kBulk;
  header_crossed_ = bulk ? 1 : 0;
  const uint64_t left_over = window_.posted_messages(*plan_, last);
  cross(port, Phase::kDrainCrossing,
        bulk ? Barrier{kBulkHeader, flight_.tag, flight_.sequence, flight_.out.size() + flight_.incoming}
             : Barrier{kDrainBarrier, flight_.tag, flight_.sequence, left_over});
}

bool PairMachine::drain(PairPort& port) {
  send_dummies(port);
  if (dummy_gate_ <= window_.posted() || window_.done() < window_.posted() || sends_.outstanding() > 0) return false;
  if (header_crossed_ != 0) {
    header_crossed_ = 0;
    begin_bulk(port);
  } else {
    phase_ = Phase::kIdle;
  }
  return true;
}

// The peer's receives that are left over are of the same gates as this rank's own, chunk for chunk.
void PairMachine::send_dummies(PairPort& port) {
  constexpr int64_t kChain = 4;
  std::array<WorkRequest, kChain> chain;
  while (dummy_gate_ <= window_.posted()) {
    const WindowPlan::Gate& gate = window_.gate(*plan_, dummy_gate_);
    const int64_t room = plan_->send_messages() - sends_.outstanding();
    const int64_t count = std::min({kChain, gate.chunks - dummy_chunk_, room});
    if (count <= 0) return;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t chunk = dummy_chunk_ + i;
      WorkRequest& request = chain[static_cast<size_t>(i)];
      request.id = kBulkTag | dummies_++;
      request.data = buffers_->dummy.data();
      request.bytes = message_bytes(1, chunk_at(gate.capacity, plan_->chunk_bytes(), chunk).bytes, plan_->limits());
      request.tag = dummy_tag(dummy_gate_, chunk);
      request.label = chunk_label(dummy_gate_, chunk);
    }
    dummy_chunk_ += count;
    if (dummy_chunk_ == gate.chunks) {
      dummy_chunk_ = 0;
      ++dummy_gate_;
    }
    sends_.posted(count);
    port.post_send({chain.data(), static_cast<size_t>(count)});
  }
}

void PairMachine::begin_bulk(PairPort& port) {
  // Only a drained window, or none, leads here.
  const bool window_active = phase_ != Phase::kHeaderCrossing && window_.done() < window_.posted();
  if (const PairFault fault = bulk_.begin(*plan_, buffers_->bulk, flight_, window_active)) return fail_with(fault);
  open_bulk_window(port);
}

void PairMachine::open_bulk_window(PairPort& port) {
  if (bulk_.over()) {
    phase_ = Phase::kIdle;
    stage_ = Stage::kDone;
    return;
  }
  bulk_.post_receives(*plan_, buffers_->bulk, flight_, port);
  cross(port, Phase::kBulkCrossing, bulk_.barrier(flight_));
}

bool PairMachine::run_bulk(PairPort& port) {
  bulk_.post_sends(*plan_, buffers_->bulk, flight_, port);
  if (!bulk_.end_window(*plan_, buffers_->bulk, flight_)) return false;
  ++bulk_windows_;
  open_bulk_window(port);
  return true;
}

std::span<const std::byte> PairMachine::arrival() const {
  COPRIME_CHECK(done(), "nothing has arrived");
  const std::span<std::byte> in =
      service() == Service::kBulk ? buffers_->bulk.in : buffers_->window_in[flight_.sequence & 1];
  return in.first(flight_.incoming);
}

}  // namespace coprime
