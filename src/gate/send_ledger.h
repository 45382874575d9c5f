// The sends of gates and of dummies that are posted and not yet complete. Each is signaled and counted; they complete
// in the order of the posts, and a completion that is not the next one is a fault.
//
// A gate's sends carry its sequence; those before its last one also the number of sends still to follow, in bits 48 and
// up. A dummy carries kBulkTag and its place among the dummies of a drain.
#pragma once

#include <cstdint>

#include "gate/constants.h"
#include "gate/pair_fault.h"
#include "transport/queue_pair.h"

namespace coprime {

class SendLedger {
 public:
  static constexpr int kLeftShift = 48;
  static constexpr uint64_t gate_send_id(uint64_t sequence, int64_t left) {
    return static_cast<uint64_t>(left) << kLeftShift | sequence;
  }

  // The next gate to send is `sequence`; nothing is outstanding.
  void open(uint64_t sequence) {
    gate_ = sequence;
    left_ = -1;
  }
  void open_dummies() { dummy_ = 0; }

  void posted(int64_t messages) { outstanding_ += messages; }
  int64_t outstanding() const { return outstanding_; }

  PairFault on_send(const Completion& completion) {
    if (outstanding_ == 0) [[unlikely]]
      return {.kind = PairFaultKind::kTooManySends, .id = completion.id};
    PairFault fault = (completion.id & kBulkTag) != 0 ? dummy(completion.id) : gate(completion.id);
    if (!fault) --outstanding_;
    return fault;
  }

 private:
  PairFault dummy(uint64_t id) {
    const uint64_t expected = kBulkTag | dummy_;
    if (id != expected) [[unlikely]]
      return unexpected(id, expected, id < expected);
    ++dummy_;
    return {};
  }
  PairFault gate(uint64_t id) {
    const uint64_t sequence = id & ((uint64_t{1} << kLeftShift) - 1);
    const auto left = static_cast<int64_t>(id >> kLeftShift);
    // Of a gate's first send the number that follows is not known here: any will do.
    if (sequence != gate_ || (left_ >= 0 && left != left_)) [[unlikely]]
      return unexpected(id, gate_send_id(gate_, left_ < 0 ? 0 : left_),
                        sequence < gate_ || (sequence == gate_ && left > left_));
    left_ = left - 1;
    if (left == 0) ++gate_;
    return {};
  }
  static PairFault unexpected(uint64_t id, uint64_t expected, bool duplicate) {
    return {.kind = duplicate ? PairFaultKind::kDuplicateSend : PairFaultKind::kUnexpectedSend,
            .id = id,
            .expected = expected};
  }

  int64_t outstanding_ = 0;
  uint64_t gate_ = 0;   // whose send is the next to complete
  int64_t left_ = -1;   // that follow in that gate's next completion; -1: its first send is the next
  uint64_t dummy_ = 0;  // the next to complete
};

}  // namespace coprime
