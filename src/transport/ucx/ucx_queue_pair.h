// A queue pair over a UCX worker of its own, with one endpoint: what arrives is the peer's. A message's UCX tag holds
// its number, from 1, its epoch and the request's tag.
//
// A rank that has told its sends complete may poll no more for a while, so they must have left by then. UCX tells a
// copied message complete while the end of it may still wait for room in TCP's buffer (and its flush waits for the
// peer's polling, which would be no better). So a message above kHeldBytes is complete when the peer's word has come
// that all of it is there, and another poll has pushed out what this rank itself had to say. Shorter ones always find
// room: two are unread at most, and the buffers hold 256 KiB.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "transport/queue_pair.h"
#include "transport/ucx/ucx_context.h"

namespace coprime {

class UcxQueuePair final : public QueuePair {
 public:
  static constexpr int kMaxOutstanding = 16;
  static constexpr size_t kHeldBytes = 64 * 1024;

  // Error(kLink).
  explicit UcxQueuePair(std::shared_ptr<UcxContext> context);
  UcxQueuePair(const UcxQueuePair&) = delete;
  ~UcxQueuePair() override;

  std::vector<std::byte> address() const;  // of the worker: for the peer's connect()
  // Error(kLink). Once, before anything is sent.
  void connect(std::span<const std::byte> peers_address);
  // All that follows is of this epoch, and a peer that closes the socket is gone.
  void begin(UniqueFd socket, uint32_t epoch) {
    socket_ = std::move(socket);
    epoch_ = epoch;
  }

  bool register_memory(std::span<std::byte>) override { return true; }
  void post_recv(std::span<const WorkRequest> chain) override;
  void post_send(std::span<const WorkRequest> chain) override;
  int poll(std::span<Completion> completions) override;
  const QueuePairLimits& limits() const override { return limits_; }
  const char* name() const override { return "ucx"; }
  uint64_t bytes_moved() const override { return events_; }
  bool holds_sends() const override { return sends_.done < sends_.posted && failure_.empty(); }
  pollfd wait_on() const override { return {.fd = -1, .events = 0, .revents = 0}; }
  const std::string& failure() const override { return failure_; }

 private:
  struct Slot {
    WorkRequest request;
    void* handle = nullptr;  // UCX's of the message; null: it is over, or none was needed
    void* word = nullptr;    // of a long send: UCX's of the peer's word, until it has come
    // Of a receive, and of a word, written by UCX's callback.
    bool arrived = false;
    ucs_status_t status = UCS_OK;
    size_t bytes = 0;
    uint64_t tag = 0;
  };
  // Requests in order: complete and not yet told, then posted and not yet complete.
  struct Queue {
    std::array<Slot, kMaxOutstanding> slots;
    uint64_t told = 0, done = 0, posted = 0;

    Slot& at(uint64_t number) { return slots[number % kMaxOutstanding]; }
    Slot& post(const WorkRequest& request);
    int tell(Completion::Kind kind, std::span<Completion> completions);
  };

  static void on_receive(void* handle, ucs_status_t status, const ucp_tag_recv_info_t* info, void* slot);
  static void on_error(void* pair, ucp_ep_h endpoint, ucs_status_t status);

  void* send(const WorkRequest& request, uint64_t tag);                 // null: it is over, or the endpoint has failed
  void* receive(std::span<std::byte> into, uint64_t kind, Slot& slot);  // null: the pair has failed
  bool is_over(void*& handle);                                          // frees it then
  void give_up(void* handle, const Slot& slot);                         // a receive's or a word's
  bool accept(Slot& slot);  // a message that arrived; else the pair has failed
  void move_sends();
  void move_receives();
  void look_for_peer();
  std::string gone_text(ucs_status_t status) const;
  void fail_pair(std::string what);

  const std::shared_ptr<UcxContext> context_;
  const UcxLibrary& ucx_;
  const QueuePairLimits limits_ = {
      .send_depth = kMaxOutstanding, .receive_depth = kMaxOutstanding, .carries_tags = true};
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
  ucs_status_t endpoint_error_ = UCS_OK;
  UniqueFd socket_;
  uint32_t epoch_ = 0;
  std::string failure_;
  uint64_t events_ = 0, idle_polls_ = 0;
  int64_t closed_us_ = 0;  // when the socket was first seen to be closed
  Queue sends_, receives_;
  std::vector<void*> words_;  // of this rank, on their way: UCX's
};

}  // namespace coprime
