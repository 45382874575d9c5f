// An unreliable connected (UC) queue pair in software, over a stream socket: for tests of those who must live with one.
//
// The socket is the wire, and the peer's calls are its device's work: what has come out of the socket when a receive is
// posted met no receive, and is lost; so posting looks at the wire first. A send completes when it has left for the
// socket; a peer that reads nothing holds it there. A peer that is gone is not noticed: nothing more arrives.
//
// A pair goes through RESET, INIT, RTR and RTS, in this order and never back; who needs another makes a new pair.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "transport/queue_pair.h"
#include "transport/soft_uc/completion_queue.h"
#include "transport/soft_uc/delivery_line.h"
#include "transport/soft_uc/device.h"
#include "transport/soft_uc/message_stream.h"

namespace coprime {

class SoftUcQueuePair final : public QueuePair {
 public:
  enum class State : uint8_t { kReset, kInit, kReadyToReceive, kReadyToSend };

  // In RESET. Error(kLink) when the device has no room for another pair.
  explicit SoftUcQueuePair(std::shared_ptr<SoftUcDevice> device);
  SoftUcQueuePair(const SoftUcQueuePair&) = delete;
  ~SoftUcQueuePair() override;

  // Error(kLink) in any state but the one before, or when this is no connected stream socket.
  void to_init();
  void to_ready_to_receive(UniqueFd socket);
  void to_ready_to_send();
  State state() const { return state_; }

  // Error(kLink) when the device has no region left. Regions last as long as the pair.
  bool register_memory(std::span<std::byte> memory) override;
  void post_recv(std::span<const WorkRequest> chain) override;
  void post_send(std::span<const WorkRequest> chain) override;
  int poll(std::span<Completion> completions) override;
  const QueuePairLimits& limits() const override { return limits_; }
  const char* name() const override { return "soft UC"; }
  bool holds_sends() const override { return sends_left_ < sends_posted_ && failure_.empty(); }
  pollfd wait_on() const override;
  const std::string& failure() const override { return failure_; }

  // What happened to the messages towards this end.
  struct Counts {
    uint64_t delivered = 0;
    uint64_t unposted = 0;   // lost since no receive was posted
    uint64_t swallowed = 0;  // lost in a mute or dead direction
  };
  const Counts& counts() const { return counts_; }

 private:
  SoftUcQueuePair(std::shared_ptr<SoftUcDevice> device, int ordinal);

  // One of the two work queues. An entry is taken until its completion is told; where there is none, until the next one
  // is.
  struct WorkQueue {
    std::deque<WorkRequest> posted;  // and not yet complete
    size_t frames = 0;               // entries that are taken
    size_t frames_untold = 0;        // of these, those of requests that are over without a completion
    size_t bytes = 0;                // of the posted requests
  };

  bool usable(const char* call);  // in RTS and not failed; else the pair fails
  void check_request(const WorkRequest& request, const WorkQueue& queue, int depth) const;
  void take_entry(WorkQueue& queue, const WorkRequest& request);
  void complete(WorkQueue& queue, const WorkRequest& request, Completion completion);

  void move_sends();
  void receive_arrived();
  void deliver(std::span<const std::byte> message, uint32_t tag);
  void arm_timer();
  void fail_pair(std::string what);

  const std::shared_ptr<SoftUcDevice> device_;
  const QueuePairLimits limits_;
  State state_ = State::kReset;
  std::string failure_;
  std::vector<std::span<std::byte>> regions_;

  std::optional<MessageStream> wire_;  // from RTR on
  DeliveryLine line_;
  bool silent_;  // mute from the start, or dead after a loss
  SoftCompletionQueue completions_;
  Counts counts_;

  WorkQueue sends_, receives_;
  uint64_t sends_posted_ = 0, sends_left_ = 0;
  uint64_t sends_may_leave_ = 0;  // so many in all, at this time

  UniqueFd timer_;  // where messages take time: expires when the next one arrives
  int64_t timer_us_ = -1;
};

// A pair in RTS over one end of a connected stream socket; the peer does the same with the other end.
std::unique_ptr<SoftUcQueuePair> connect_soft_uc(std::shared_ptr<SoftUcDevice> device, UniqueFd socket);

// Two ends in this process.
std::pair<std::unique_ptr<SoftUcQueuePair>, std::unique_ptr<SoftUcQueuePair>> connect_soft_uc(
    std::shared_ptr<SoftUcDevice> a, std::shared_ptr<SoftUcDevice> b);

}  // namespace coprime
