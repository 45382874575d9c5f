// One completion queue and one queue pair of an RDMA device, RC or UC, and their way from creation to ready-to-send.
//
// Work request ids on the device are our own counters (the caller's ids are kept beside), so that a completion that is
// unknown, told twice or out of order ends the pair instead of being believed. Completions of sends that asked for none
// are swallowed: some providers tell them. A pair whose setup threw is only good for being destroyed.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "transport/driver_limits.h"
#include "transport/queue_pair.h"
#include "transport/verbs/gid.h"
#include "transport/verbs/verbs_device.h"

namespace coprime {

// What one end needs to know of the other to make the connection.
struct VerbsEnd {
  uint32_t number = 0;  // of the queue pair
  uint32_t packet = 0;  // the first packet's sequence number, 24 bits
  uint32_t mtu = 0;     // an ibv_mtu
  uint16_t lid = 0;
  bool reliable = false;
  ibv_gid gid = {};
  uint64_t max_message_bytes = 0;
  int send_depth = 0, receive_depth = 0;
  bool tags = false;  // it sends and tells immediate data
};

class VerbsQueuePair final : public QueuePair {
 public:
  static constexpr int kDepth = 1024;                                   // of both queues, asked for first
  static constexpr int kSmallSendDepth = 256, kSmallReceiveDepth = 64;  // where that is refused
  static constexpr int kMinCompletions = 512;                           // entries of the completion queue

  // kProbe tries RC, then UC; full depths, then the small ones. Error(kLink) when all are refused. max_message_bytes as
  // in VerbsOptions.
  static std::unique_ptr<VerbsQueuePair> create(std::shared_ptr<VerbsDevice> device, VerbsType type,
                                                size_t max_message_bytes);
  ~VerbsQueuePair() override;

  // In this order; Error(kLink) when the device refuses a step or the ends do not fit each other.
  void initialize();
  VerbsEnd end(const GidChoice& gid);  // ours, with a fresh packet number
  void connect(const VerbsEnd& ours, const VerbsEnd& peers, uint8_t gid_index);

  bool register_memory(std::span<std::byte> memory) override;
  void release_memory(std::span<std::byte> memory);  // nothing that is posted may lie in it
  void post_recv(std::span<const WorkRequest> chain) override;
  void post_send(std::span<const WorkRequest> chain) override;
  int poll(std::span<Completion> completions) override;
  const QueuePairLimits& limits() const override { return limits_; }
  const char* name() const override { return reliable_ ? "verbs RC" : "verbs UC"; }
  pollfd wait_on() const override { return {.fd = -1, .events = 0, .revents = 0}; }
  const std::string& failure() const override { return failure_; }

  bool reliable() const { return reliable_; }
  int mtu() const { return mtu_bytes(mtu_); }  // the path's, once connected

 private:
  struct Posted {
    uint64_t id = 0;
    size_t bytes = 0;
    bool signaled = true;
  };

  // Requests in the order of posting: [done, posted) are on the device.
  struct Queue {
    std::vector<Posted> slots;
    uint64_t done = 0, posted = 0;

    Posted& at(uint64_t number) { return slots[number % slots.size()]; }
    void post(const WorkRequest& request, bool signaled);
  };

  static constexpr uint64_t kReceiveBit = 1ull << 63;  // in the device's ids

  VerbsQueuePair(std::shared_ptr<VerbsDevice> device, bool reliable)
      : device_(std::move(device)), reliable_(reliable) {}
  bool try_create(int send_depth, int receive_depth, std::string& refusals);
  void set_limits(int send_depth, int receive_depth, size_t max_message_bytes);
  void modify(ibv_qp_attr& attributes, int mask, const char* step, const char* advice);
  ibv_sge element(const WorkRequest& request) const;
  bool retire(const ibv_wc& work, Completion& completion);  // whether there is something to tell
  void fail_pair(std::string what);

  std::shared_ptr<VerbsDevice> device_;
  const bool reliable_;
  ibv_cq* completions_ = nullptr;
  ibv_qp* pair_ = nullptr;
  uint32_t mtu_ = 0;
  QueuePairLimits limits_;
  std::string failure_;
  std::vector<std::shared_ptr<const VerbsMemory>> memory_;
  Queue sends_, receives_;
};

}  // namespace coprime
