// What ends a pair's machine: a value without text, so that machines are copied and compared cheaply; pair_machine.h
// puts it in words.
#pragma once

#include <cstdint>

#include "transport/side_channel.h"

namespace coprime {

enum class PairFaultKind : uint64_t {
  kNone,
  kSendStatus,         // found: the status; id
  kReceiveStatus,      // likewise
  kUnexpectedSend,     // id was posted by nobody, or not next (expected)
  kTooManySends,       // a completion while no send is outstanding
  kDuplicateSend,      // id
  kUnexpectedReceive,  // id was posted by nobody, or not next (expected)
  kDuplicateReceive,   // id
  kReceiveLength,      // found and expected bytes; id
  kEmptyReceive,       // id
  // id and expected: the sequence and the chunk whose receive met a message of another gate or chunk; found: its tag.
  kWrongMessage,
  kPeerAhead,          // id of a gate that the peer cannot have reached
  kBarrier,            // crossed and expected differ
  kUnexpectedBarrier,  // crossed
  kGateOrder,          // id: the sequence; found: the entry; expected: the entry that is next
  kBulkRefused,        // id: the sequence
  kVerifyIncomplete,   // found: gates that were; expected: gates of the step
  kStepIncomplete,     // likewise
};

struct PairFault {
  PairFaultKind kind = PairFaultKind::kNone;
  uint64_t id = 0, found = 0, expected = 0;
  Barrier crossed, awaited;

  explicit operator bool() const { return kind != PairFaultKind::kNone; }
  bool operator==(const PairFault&) const = default;
};

}  // namespace coprime
