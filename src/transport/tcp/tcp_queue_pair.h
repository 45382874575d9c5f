// A queue pair over one TCP connection (any stream socket will do).
//
// A message is a frame: a header of 32 bytes {magic, epoch, sequence, bytes, tag} and the payload, little-endian, sent by one
// system call. A frame whose magic, epoch or sequence is not the expected one, or that is longer than the receive that it meets,
// ends the pair before a byte of it is used. What arrives without a posted receive stays in the socket, which holds the sender back.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/unique_fd.h"
#include "transport/queue_pair.h"

namespace coprime {

class TcpQueuePair final : public QueuePair {
 public:
  static constexpr int kMaxOutstanding = 16;

  TcpQueuePair(UniqueFd socket, uint32_t epoch);  // makes the socket non-blocking

  void post_recv(std::span<const WorkRequest> requests) override;
  void post_send(std::span<const WorkRequest> requests) override;
  int poll(std::span<Completion> completions) override;
  QueuePairLimits limits() const override { return {size_t{1} << 40, kMaxOutstanding, kMaxOutstanding}; }
  pollfd wait_on() const override;
  const std::string& failure() const override { return failure_; }

 private:
  // What the frames' first bytes say. Fields of the host, all little-endian here.
  struct FrameHeader {
    uint32_t magic, epoch;
    uint64_t sequence, bytes;
    uint32_t tag, reserved;
  };
  static constexpr uint32_t kMagic = 0x45544147;  // "GATE"
  // Small frames pass through here, so that one system call gets header and payload; of a large one only the start does.
  static constexpr size_t kStagingBytes = 64 * 1024;

  // A queue of at most kMaxOutstanding requests, oldest first.
  struct Ring {
    std::array<WorkRequest, kMaxOutstanding> slots;
    uint64_t head = 0, tail = 0;
    bool empty() const { return head == tail; }
    WorkRequest& front() { return slots[head % kMaxOutstanding]; }
    const WorkRequest& front() const { return slots[head % kMaxOutstanding]; }
    void push(const WorkRequest& request);
    void pop() { ++head; }
  };

  void move_sends();
  void move_receives();
  bool take_staged();
  bool begin_frame(const FrameHeader& header);
  bool finish_bytes(size_t count);
  void fail_pair(std::string what);

  UniqueFd socket_;
  uint32_t epoch_;
  std::string failure_;

  Ring sends_;
  FrameHeader send_header_ = {};
  size_t sent_ = 0;  // of the header and payload of sends_.front()
  uint64_t sends_done_ = 0, sends_reported_ = 0;

  Ring receives_;
  std::vector<std::byte> staging_;
  size_t staged_begin_ = 0, staged_end_ = 0;
  bool in_frame_ = false;
  FrameHeader frame_ = {};
  size_t frame_received_ = 0;
  uint64_t receives_done_ = 0, receives_reported_ = 0;
  bool peer_closed_ = false;
};

}  // namespace coprime
