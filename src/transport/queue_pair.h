// One end of a two-sided connection to one peer, as a verbs provider shows it to software: receives are posted ahead,
// sends are posted, and poll() makes progress and tells what is complete. Messages arrive in the order of the sends,
// each in the next posted receive. Nothing blocks: both directions move whenever poll() is called.
//
// What a provider may do to a careless user stands in its limits: a message that meets no receive may be lost, and on
// some links its direction with it. Who posts in time is gate/'s business.
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
  uint64_t id = 0;  // told by its completion; does not travel
  std::byte* data = nullptr;
  size_t bytes = 0;      // of a receive: the room that there is
  size_t headroom = 0;   // bytes before `data` that the provider may overwrite: room for a header of its own
  uint32_t tag = 0;      // of a send: travels along where the provider carries tags (immediate data, on a device)
  uint64_t label = 0;    // both ends know it: an authenticating pair binds the message to it
  bool signaled = true;  // of a send: asks for a completion
};

struct Completion {
  enum class Kind : uint8_t { kSend, kReceive };
  Kind kind = Kind::kSend;
  uint32_t status = 0;  // 0: done; else the provider's code, in words in failure()
  uint64_t id = 0;
  size_t bytes = 0;  // of a receive: the message's length
  uint32_t tag = 0;  // of a receive: the sender's; 0 where tags are not carried
};

// Both ends of a pair have the same: each provider agrees on the smaller while it connects (verbs), or has them fixed.
struct QueuePairLimits {
  size_t max_message_bytes = SIZE_MAX;
  int send_depth = 0, receive_depth = 0;  // posted and not yet complete, as granted
  size_t max_posted_bytes = SIZE_MAX;     // of the receives that are posted and not yet complete
  size_t frame_bytes = 0;                 // if set: see frames_of()
  bool loses_unposted = false;        // a message that meets no posted receive is lost, without a word to the sender
  bool completes_unsignaled = false;  // sends that did not ask for a completion have one as well
  bool carries_tags = false;

  bool operator==(const QueuePairLimits&) const = default;
};

// How many entries of its queue a request takes. Where there are frames the depths count them, and a send and the
// receive that it meets must cover equally many.
inline size_t frames_of(const QueuePairLimits& limits, size_t bytes) {
  if (limits.frame_bytes == 0 || bytes == 0) return 1;
  return (bytes - 1) / limits.frame_bytes + 1;
}

class QueuePair {
 public:
  virtual ~QueuePair() = default;

  // Every buffer that is posted must lie in registered memory. False: the provider does not take this memory, and the
  // caller stages through memory of another kind. A provider that needs no registration says true.
  virtual bool register_memory(std::span<std::byte> memory) = 0;

  // A chain of requests, in order. The buffers stay untouched by the caller until the completion. More than the limits
  // allow is a broken invariant.
  virtual void post_recv(std::span<const WorkRequest> chain) = 0;
  virtual void post_send(std::span<const WorkRequest> chain) = 0;
  virtual int poll(std::span<Completion> completions) = 0;
  virtual const QueuePairLimits& limits() const = 0;
  virtual const char* name() const = 0;  // "tcp", "verbs UC", ...

  // Counts up while a message is on its way, where messages are long: a rank whose bytes move is not stuck.
  virtual uint64_t bytes_moved() const { return 0; }

  // Whether messages that were sent leave only while poll() is called: a device in software.
  virtual bool holds_sends() const { return false; }

  // What to give to poll(2) in order to sleep until poll() may have news; fd -1: there is nothing to sleep on.
  virtual pollfd wait_on() const = 0;

  // Empty while the pair works; else what ended it, to be read after "rank 2 ": "closed the connection".
  virtual const std::string& failure() const = 0;
};

}  // namespace coprime
