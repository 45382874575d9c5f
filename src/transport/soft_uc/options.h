// What a software UC device imitates: the promises of its queue pairs, how they lose messages, and what goes wrong on
// purpose. Every end has its own options; what they say of messages holds for the messages towards that end. The limits
// of both ends are to be the same, as after the agreement of a real provider.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "transport/driver_limits.h"
#include "transport/queue_pair.h"

namespace coprime {

// Something that goes wrong with the first-th message or completion, and with each every-th one after it.
struct SoftUcFault {
  enum class Kind : uint8_t {
    // Of messages towards this end, in the order in which they leave the peer.
    kDropMessage,
    kFlipByte,  // one bit, at a random place
    kRepeatMessage,
    kSwapMessages,  // with the next one
    // Of completions of the kind `of`.
    kDuplicateCompletion,
    kLoseCompletion,
    kWrongId,    // that of the newest request in the queue, else one less than its own
    kUnknownId,  // which no request has
    kWrongLength,
    kBadStatus,  // and the pair ends
  };
  Kind kind = Kind::kDropMessage;
  uint64_t first = 1;
  uint64_t every = 0;  // 0: once
  Completion::Kind of = Completion::Kind::kReceive;

  bool strikes(uint64_t number) const {
    return number == first || (every > 0 && number > first && (number - first) % every == 0);
  }
};

// How long a message is on its way, counted from when it left. Messages stay in order, so one that is late holds up
// those behind it. Different `base_us` at two ends: skew.
struct SoftUcDelay {
  int64_t base_us = 0;
  int64_t jitter_us = 0;     // and at random up to so much more
  uint64_t stall_every = 0;  // of messages; 0: none stalls
  int64_t stall_us = 0;

  bool none() const { return base_us == 0 && jitter_us == 0 && (stall_every == 0 || stall_us == 0); }
};

// The default: UC as the standard has it. A message that meets no posted receive is lost, and those after it arrive.
struct SoftUcOptions {
  size_t max_message_bytes = 1 << 20;
  int send_depth = 1024, receive_depth = 1024;
  size_t max_posted_bytes = SIZE_MAX;
  size_t frame_bytes = 0;
  bool completes_unsignaled = false;
  bool carries_tags = true;

  bool loss_is_final = false;          // after a message that met no receive, nothing arrives any more
  bool completes_sends_early = false;  // before the bytes are read: they are, in the call after the next poll()
  bool receives_before_rts = true;     // false: post_recv() before RTS ends the pair
  int mute_pairs = 0;                  // the device's first so many pairs never receive anything

  int max_queue_pairs = INT_MAX, max_regions = INT_MAX;            // of a device
  std::function<bool(std::span<const std::byte>)> refuses_memory;  // empty: all memory can be registered

  size_t completion_queue_holds = SIZE_MAX;  // whatever the depths promise; completions beyond are lost

  SoftUcDelay delay;
  std::vector<SoftUcFault> faults;
  uint64_t seed = 1;  // of delays and of the places of flipped bits
};

inline constexpr size_t kAppleMaxMessageBytes = DS4_TP_RDMA_MAX_MSG;
inline constexpr size_t kAppleWideMaxMessageBytes = 512 * 1024;  // of later systems

// UC as over Thunderbolt between Macs, with all that spec and users report of it but the mute pairs.
inline SoftUcOptions apple_uc_options(size_t max_message_bytes = kAppleMaxMessageBytes) {
  return {.max_message_bytes = max_message_bytes,
          .max_posted_bytes = 63 * 64 * 1024,
          .frame_bytes = 4096,
          .completes_unsignaled = true,
          .carries_tags = false,
          .loss_is_final = true,
          .completes_sends_early = true,
          .receives_before_rts = false,
          .max_queue_pairs = 10,
          .max_regions = 100};
}

}  // namespace coprime
