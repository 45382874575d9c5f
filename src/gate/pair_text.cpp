// What a pair's machine says about itself.
#include <fmt/format.h>

#include "gate/pair_machine.h"

namespace coprime {
namespace {

std::string barrier_text(const Barrier& barrier) {
  return fmt::format("0x{:X} (place {}, seq {}, {} bytes)", barrier.kind, barrier.place, barrier.sequence,
                     barrier.bytes);
}

std::string status_text(const char* what, const PairFault& fault) {
  return fmt::format("completion of {} {:#x} failed with status {}", what, fault.id, fault.found);
}

std::string unexpected_text(const char* what, const PairFault& fault) {
  return fmt::format("completion of an unknown {} {:#x}, {:#x} is next: the completion queue lost or made up entries",
                     what, fault.id, fault.expected);
}

// The number nearest to `near` whose lowest `bits` are those of `low`.
uint64_t nearest(uint64_t near, uint64_t low, int bits) {
  const uint64_t ahead = (low - near) & ((uint64_t{1} << bits) - 1);
  return ahead >> (bits - 1) != 0 && near + ahead >= uint64_t{1} << bits ? near + ahead - (uint64_t{1} << bits)
                                                                         : near + ahead;
}

std::string wrong_message_text(const PairFault& fault) {
  const uint64_t sequence = nearest(fault.id, fault.found >> (kChunkTagBits + kDigestBits), kSequenceTagBits);
  const uint64_t chunk = nearest(fault.expected, fault.found >> kDigestBits, kChunkTagBits);
  if (sequence == fault.id && chunk == fault.expected) {
    return fmt::format("a message of another gate in the receive of seq {} chunk {}: the ranks are at different gates",
                       fault.id, fault.expected);
  }
  return fmt::format(
      "message of seq {} chunk {} in the receive of seq {} chunk {}: the link lost or moved a message, or the ranks "
      "are "
      "at different gates",
      sequence, chunk, fault.id, fault.expected);
}

}  // namespace

std::string PairMachine::gate_text_of(const Flight& flight) const {
  return gate_text(plan_->schedule()[static_cast<size_t>(flight.entry)]);
}

std::string PairMachine::fault_text() const {
  switch (fault_.kind) {
    case PairFaultKind::kNone:
      return {};
    case PairFaultKind::kSendStatus:
      return status_text("send", fault_);
    case PairFaultKind::kReceiveStatus:
      return status_text("receive", fault_);
    case PairFaultKind::kUnexpectedSend:
      return unexpected_text("send", fault_);
    case PairFaultKind::kUnexpectedReceive:
      return unexpected_text("receive", fault_);
    case PairFaultKind::kTooManySends:
      return fmt::format("completion of send {:#x} while no send is outstanding", fault_.id);
    case PairFaultKind::kDuplicateSend:
      return fmt::format("duplicate completion of send {:#x}", fault_.id);
    case PairFaultKind::kDuplicateReceive:
      return fmt::format("duplicate completion of receive {:#x}", fault_.id);
    case PairFaultKind::kReceiveLength:
      return fmt::format(
          "receive {:#x} has {} bytes, {} were expected: the ranks are at different gates, or a message "
          "was lost",
          fault_.id, fault_.found, fault_.expected);
    case PairFaultKind::kEmptyReceive:
      return fmt::format("receive {:#x} completed with zero bytes", fault_.id);
    case PairFaultKind::kWrongMessage:
      return wrong_message_text(fault_);
    case PairFaultKind::kPeerAhead:
      return fmt::format("a message arrived for a gate after seq {}, which the peer cannot have reached",
                         fault_.expected);
    case PairFaultKind::kBarrier:
      return fmt::format("crossed barrier {} where {} was expected: the ranks are at different gates",
                         barrier_text(fault_.crossed), barrier_text(fault_.awaited));
    case PairFaultKind::kUnexpectedBarrier:
      return fmt::format("crossed barrier {} where none was expected", barrier_text(fault_.crossed));
    case PairFaultKind::kGateOrder:
      return fmt::format("gate order broke: {} vs seq {}",
                         fault_.found < plan_->schedule().size()
                             ? gate_text(plan_->schedule()[static_cast<size_t>(fault_.found)])
                             : fmt::format("entry {}", static_cast<int64_t>(fault_.found)),
                         fault_.id);
    case PairFaultKind::kBulkRefused:
      return fmt::format("big gate unavailable or decode window still active: seq {}", fault_.id);
    case PairFaultKind::kVerifyIncomplete:
      return fmt::format("verify window ended after {} of {} gates, at seq {}", fault_.found, fault_.expected,
                         fault_.id);
    case PairFaultKind::kStepIncomplete:
      return fmt::format("gate order broke: a step begins after {} of {} gates, at seq {}", fault_.found,
                         fault_.expected, fault_.id);
  }
  return {};
}

std::string PairMachine::timeout_text() const {
  if (stage_ == Stage::kNone) return "timeout before the first gate";
  const std::string gate = fmt::format("{} seq {}", gate_text_of(flight_), flight_.sequence);
  switch (phase_) {
    case Phase::kArming:
    case Phase::kHeaderCrossing:
      return fmt::format("timeout at barrier 0x{:X} before {}", awaited_.kind, gate);
    case Phase::kBulkCrossing:
      return fmt::format("timeout at the barrier of a bulk window, {}, {}", gate, bulk_.text());
    case Phase::kBulkMoving:
      return fmt::format("timeout in a bulk exchange, {}, {}", gate, bulk_.text());
    case Phase::kDrainCrossing:
    case Phase::kDraining:
      return fmt::format("timeout draining RDMA receive window ({}/{})",
                         window_.arrived_messages(*plan_, drained_from_),
                         window_.posted_messages(*plan_, drained_from_));
    case Phase::kIdle:
    case Phase::kWindow:
    case Phase::kSettling:
      break;
  }
  return fmt::format("gate timeout: {}, recv_done {}, {} sends outstanding", gate, window_.done(),
                     sends_.outstanding());
}

std::string PairMachine::closed_text() const {
  switch (phase_) {
    case Phase::kDrainCrossing:
    case Phase::kDraining:
      return "peer disconnected while draining RDMA receives";
    case Phase::kHeaderCrossing:
    case Phase::kBulkCrossing:
    case Phase::kBulkMoving:
      return "peer disconnected in a bulk exchange";
    case Phase::kArming:
      return fmt::format("peer disconnected at barrier 0x{:X}", awaited_.kind);
    case Phase::kIdle:
    case Phase::kWindow:
    case Phase::kSettling:
      break;
  }
  return "peer disconnected while a gate was awaited";
}

}  // namespace coprime
