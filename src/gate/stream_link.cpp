// Gates over a pair that keeps messages until a receive is posted.
//
// Two receives are posted at any time, since a peer may lead by one gate: sequence s lands in the slot of its parity,
// which is posted again when the views of s are released. A flight is done when its send has completed, too.
#include <array>

#include "base/check.h"
#include "gate/peer_link.h"
#include "tensor/buffer.h"

namespace coprime {
namespace {

class StreamLink final : public PeerLink {
 public:
  StreamLink(std::unique_ptr<QueuePair> pair, size_t slot_bytes, std::span<std::byte> out_slots)
      : slot_bytes_(slot_bytes),
        stride_((kHeadroom + slot_bytes + 4095) / 4096 * 4096),
        slots_(2 * stride_),
        pair_(std::move(pair)) {
    COPRIME_CHECK(pair_->register_memory({slots_.data(), slots_.size()}) && pair_->register_memory(out_slots),
                  "a stream's memory is not registered");
    post_receive(1);
    post_receive(2);
  }

  void begin_step(int, int) override {}

  void start(const Flight& flight) override {
    sequence_ = flight.sequence;
    const WorkRequest request = {.id = sequence_,
                                 .data = flight.out.data(),
                                 .bytes = flight.out.size(),
                                 .headroom = flight.headroom,
                                 .tag = flight.tag,
                                 .label = sequence_};
    pair_->post_send({&request, 1});
  }

  bool done() override {
    std::array<Completion, 4> completions;
    const int count = pair_->poll(completions);
    for (int i = 0; i < count; ++i) {
      const Completion& completion = completions[static_cast<size_t>(i)];
      if (completion.kind == Completion::Kind::kSend) {
        sent_ = completion.id;
      } else {
        received_ = completion.id;
        arrivals_[completion.id & 1] = {{slot(completion.id), completion.bytes}, completion.tag};
      }
    }
    return sent_ >= sequence_ && received_ >= sequence_;
  }

  Arrival arrival() const override { return arrivals_[sequence_ & 1]; }
  void released() override { post_receive(sequence_ + 2); }

  int wait_on(std::span<pollfd> into) const override {
    into[0] = pair_->wait_on();
    return into[0].fd < 0 ? 0 : 1;
  }
  uint64_t moved() const override { return pair_->bytes_moved(); }
  bool can_sleep() const override { return pair_->wait_on().fd >= 0; }
  const char* name() const override { return pair_->name(); }
  const std::string& failure() const override { return pair_->failure(); }

 private:
  static constexpr size_t kHeadroom = 64;  // and the slots stay aligned

  std::byte* slot(uint64_t sequence) { return slots_.data() + (sequence & 1) * stride_ + kHeadroom; }
  void post_receive(uint64_t sequence) {
    const WorkRequest request = {
        .id = sequence, .data = slot(sequence), .bytes = slot_bytes_, .headroom = kHeadroom, .label = sequence};
    pair_->post_recv({&request, 1});
  }

  size_t slot_bytes_, stride_;
  Buffer slots_;                     // by parity
  std::unique_ptr<QueuePair> pair_;  // lets go of the slots first
  uint64_t sequence_ = 0, sent_ = 0, received_ = 0;
  std::array<Arrival, 2> arrivals_;
};

}  // namespace

bool suits_stream_link(const QueuePairLimits& limits, size_t slot_bytes) {
  return !limits.loses_unposted && limits.carries_tags && limits.frame_bytes == 0 &&
         limits.max_message_bytes >= slot_bytes && limits.max_posted_bytes >= 2 * slot_bytes;
}

std::unique_ptr<PeerLink> make_stream_link(std::unique_ptr<QueuePair> pair, size_t slot_bytes,
                                           std::span<std::byte> out_slots) {
  return std::make_unique<StreamLink>(std::move(pair), slot_bytes, out_slots);
}

}  // namespace coprime
