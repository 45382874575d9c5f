// One end of a two-sided connection to one peer, as a verbs provider would show it: receives are posted ahead, sends
// are posted, and poll() makes progress and tells what is complete. Messages arrive in order, each in the next posted
// receive. Nothing blocks: both directions move whenever poll() is called.
//
// A pair that failed stays failed: poll() then returns nothing, posting has no effect, and failure() says what
// happened.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace coprime {

struct WorkRequest {
  uint64_t id = 0;  // of a message: a send's id travels along, and must equal the id of the receive that it meets
  std::byte* data = nullptr;
  size_t bytes = 0;  // of a receive: the room that there is
  uint32_t tag = 0;  // of a send: travels along, for the receiver to compare
};

struct Completion {
  enum class Kind : uint8_t { kSend, kReceive };
  Kind kind = Kind::kSend;
  uint64_t id = 0;
  size_t bytes = 0;  // of a receive: the message's length
  uint32_t tag = 0;  // of a receive: the sender's
};

struct QueuePairLimits {
  size_t max_message_bytes = 0;
  int max_sends = 0, max_receives = 0;  // posted and not yet complete
};

class QueuePair {
 public:
  virtual ~QueuePair() = default;

  // The buffers stay untouched by the caller until the completion. More than the limits allow is a broken invariant.
  virtual void post_recv(std::span<const WorkRequest> requests) = 0;
  virtual void post_send(std::span<const WorkRequest> requests) = 0;
  virtual int poll(std::span<Completion> completions) = 0;
  virtual QueuePairLimits limits() const = 0;

  // What to give to poll(2) in order to sleep until poll() may have news.
  virtual pollfd wait_on() const = 0;

  // Empty while the pair works; else what ended it, to be read after "rank 2 ": "closed the connection".
  virtual const std::string& failure() const = 0;
};

}  // namespace coprime
