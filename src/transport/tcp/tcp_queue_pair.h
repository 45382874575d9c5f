// A queue pair over one TCP connection (any stream socket will do).
//
// A message is a frame: a header of 32 bytes {magic, epoch, number, bytes, tag} and the payload, little-endian, sent by
// one system call; the pair numbers its messages from 1. A frame whose magic, epoch or number is not the expected one,
// or that is longer than the receive that it meets, ends the pair: no completion tells of it, whatever lies in the
// receive's buffer by then. What arrives without a posted receive stays in the socket, which holds the sender back.
#pragma once

#include <array>
#include <vector>

#include "base/unique_fd.h"
#include "transport/queue_pair.h"

namespace coprime {

class TcpQueuePair final : public QueuePair {
 public:
  static constexpr int kMaxOutstanding = 16;

  TcpQueuePair(UniqueFd socket, uint32_t epoch);  // makes the socket non-blocking

  bool register_memory(std::span<std::byte>) override { return true; }
  void post_recv(std::span<const WorkRequest> chain) override;
  void post_send(std::span<const WorkRequest> chain) override;
  int poll(std::span<Completion> completions) override;
  const QueuePairLimits& limits() const override { return limits_; }
  const char* name() const override { return "tcp"; }
  uint64_t bytes_moved() const override { return bytes_moved_; }
  pollfd wait_on() const override;
  const std::string& failure() const override { return failure_; }

 private:
  struct FrameHeader {
    uint32_t magic, epoch;
    uint64_t number, bytes;
    uint32_t tag, reserved;
  };
  static constexpr uint32_t kMagic = 0x45544147;  // "GATE"
  // Where a receive has headroom for a header, a frame goes there and behind it at once. Else small frames pass through
  // here, as do those that arrive in pieces; of a large one only its ends do.
  static constexpr size_t kStagingBytes = 64 * 1024;

  // Requests in order: complete and not yet told, then posted and not yet complete.
  struct Queue {
    std::array<WorkRequest, kMaxOutstanding> slots;
    uint64_t told = 0, done = 0, posted = 0;

    bool idle() const { return done == posted; }
    WorkRequest& current() { return slots[done % kMaxOutstanding]; }
    void post(const WorkRequest& request);
    void complete() { ++done; }
    int tell(Completion::Kind kind, std::span<Completion> completions);
  };

  void move_sends();
  void move_receives();
  ssize_t send_some(const WorkRequest& request);
  void use_frame_start(const std::byte* bytes, size_t count);  // that came into a receive's headroom and behind it
  bool use_staged();                             // whether the frame in hand, or its header, needs more bytes
  bool accept_frame(const FrameHeader& header);  // else the pair has failed
  void advance_frame(size_t count);
  void fail_pair(std::string what);

  const QueuePairLimits limits_ = {
      .send_depth = kMaxOutstanding, .receive_depth = kMaxOutstanding, .carries_tags = true};
  UniqueFd socket_;
  uint32_t epoch_;
  std::string failure_;
  uint64_t bytes_moved_ = 0;

  Queue sends_;
  FrameHeader send_header_ = {};
  size_t sent_ = 0;  // of the current send's header and payload
  bool send_broken_ = false;

  Queue receives_;
  std::vector<std::byte> staging_;
  size_t staged_begin_ = 0, staged_end_ = 0;
  bool in_frame_ = false;  // the current receive's header was read
  size_t frame_bytes_ = 0, frame_received_ = 0;
};

}  // namespace coprime
