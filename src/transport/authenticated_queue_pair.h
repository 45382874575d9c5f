// A queue pair whose messages each carry a keyed hash (`--wire-auth`): what does not come from the peer, in the order
// in which the peer sent it, to this rank, in this session, ends the pair before a byte of it is in a receive's buffer.
//
// Works over any other pair. A message on the wire is the payload and 16 bytes of proof; the inner pair sends and
// receives in staging memory of its own. Message numbers do not travel: both ends count, so a message that was lost,
// repeated or swapped is one whose proof fails. A send and the receive that it meets must have the same label.
//
// Where the inner pair counts frames, messages are padded, so that the caller's rule still is the inner pair's: a
// payload of k frames is always sent as k + 1, or as the cap where that is less, and its length travels along (8
// bytes). Payloads are not encrypted.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "transport/message_authenticator.h"
#include "transport/queue_pair.h"
#include "transport/staging_slots.h"

namespace coprime {

class AuthenticatedQueuePair final : public QueuePair {
 public:
  struct Session {
    SessionKey key;  // read by the constructor only
    uint32_t epoch = 1;
    int rank = 0, peer = 0;
  };
  // Messages of at most max_message_bytes, or of what the inner pair has room for. Error(kLink) when that refuses the
  // staging memory.
  AuthenticatedQueuePair(std::unique_ptr<QueuePair> inner, const Session& session, size_t max_message_bytes);

  bool register_memory(std::span<std::byte>) override { return true; }
  void post_recv(std::span<const WorkRequest> chain) override;
  void post_send(std::span<const WorkRequest> chain) override;
  int poll(std::span<Completion> completions) override;
  const QueuePairLimits& limits() const override { return limits_; }
  const char* name() const override { return name_.c_str(); }
  uint64_t bytes_moved() const override { return inner_->bytes_moved(); }
  bool holds_sends() const override { return inner_->holds_sends(); }
  pollfd wait_on() const override { return inner_->wait_on(); }
  const std::string& failure() const override { return failure_; }

 private:
  static constexpr int kMaxStaged = 512;  // of the inner depths, at most

  struct Staged {
    WorkRequest request;  // the caller's
    std::byte* slot = nullptr;
  };
  // The inner requests of one queue in order; their ids are their numbers, from 1.
  struct Queue {
    explicit Queue(StagingSlots staging) : slots(std::move(staging)) {}
    StagingSlots slots;
    std::deque<Staged> posted;
    uint64_t completed = 0;
    uint64_t next_number() const { return completed + posted.size() + 1; }
  };

  static QueuePairLimits limits_over(const QueuePairLimits& inner, size_t max_message_bytes);
  size_t trailer_bytes() const;
  size_t wire_bytes(size_t payload_bytes) const;
  void seal(const WorkRequest& request, uint64_t number, std::byte* slot) const;
  bool open(const Staged& receive, uint64_t number, Completion& completion) const;  // false: not from the peer
  bool translate(Completion& completion);                                           // whether the caller is told
  Staged complete(Queue& queue);
  void fail_pair(std::string what);

  const QueuePairLimits inner_limits_, limits_;
  const MessageAuthenticator outgoing_, incoming_;
  Queue sends_, receives_;  // outlive the inner pair, which reads and writes their memory
  const std::unique_ptr<QueuePair> inner_;
  const std::string name_;
  std::string failure_;
  std::vector<WorkRequest> chain_;
};

}  // namespace coprime
