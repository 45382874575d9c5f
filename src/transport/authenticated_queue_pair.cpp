#include "transport/authenticated_queue_pair.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/error.h"

namespace coprime {
namespace {

constexpr size_t kLengthBytes = 8;

// The smallest frames of all: a whole one always has room for the trailer.
constexpr size_t kMinFrameBytes = kMessageProofBytes + kLengthBytes;

StagingSlots::Order slot_order(const QueuePairLimits& inner) {
  return inner.loses_unposted ? StagingSlots::Order::kOldest : StagingSlots::Order::kNewest;
}

}  // namespace

QueuePairLimits AuthenticatedQueuePair::limits_over(const QueuePairLimits& inner, size_t max_message_bytes) {
  QueuePairLimits limits = inner;
  limits.completes_unsignaled = false;
  limits.send_depth = std::min(inner.send_depth, kMaxStaged);
  limits.receive_depth = std::min(inner.receive_depth, kMaxStaged);
  const size_t frame = inner.frame_bytes;
  if (frame == 0) {
    limits.max_message_bytes = std::min(inner.max_message_bytes - kMessageProofBytes, max_message_bytes);
    if (inner.max_posted_bytes < SIZE_MAX) {
      // Each receive may need a proof more than its own bytes, and half of the bytes are enough for proofs.
      const size_t receives = inner.max_posted_bytes / 2 / kMessageProofBytes;
      limits.receive_depth = static_cast<int>(std::min(static_cast<size_t>(limits.receive_depth), receives));
      limits.max_posted_bytes -= static_cast<size_t>(limits.receive_depth) * kMessageProofBytes;
    }
    return limits;
  }
  // Depths count frames, and k frames need at most 2k of the inner pair's: k + 1.
  COPRIME_CHECK(frame >= kMinFrameBytes && inner.max_message_bytes >= frame, "frames of {} bytes", frame);
  const size_t cap = inner.max_message_bytes / frame * frame - kMessageProofBytes - kLengthBytes;
  limits.max_message_bytes = std::min(cap, max_message_bytes);
  limits.send_depth = std::min(inner.send_depth / 2, kMaxStaged);
  const auto posted_frames = inner.max_posted_bytes / (2 * frame);
  limits.receive_depth = static_cast<int>(
      std::min({static_cast<size_t>(inner.receive_depth / 2), posted_frames, static_cast<size_t>(kMaxStaged)}));
  limits.max_posted_bytes = std::min(inner.max_posted_bytes, static_cast<size_t>(limits.receive_depth) * frame);
  return limits;
}

AuthenticatedQueuePair::AuthenticatedQueuePair(std::unique_ptr<QueuePair> inner, const Session& session,
                                               size_t max_message_bytes)
    : inner_limits_(inner->limits()),
      limits_(limits_over(inner_limits_, max_message_bytes)),
      outgoing_(session.key, session.epoch, session.rank, session.peer),
      incoming_(session.key, session.epoch, session.peer, session.rank),
      sends_(StagingSlots(static_cast<size_t>(limits_.send_depth), wire_bytes(limits_.max_message_bytes),
                          slot_order(inner_limits_))),
      receives_(StagingSlots(static_cast<size_t>(limits_.receive_depth), wire_bytes(limits_.max_message_bytes),
                             slot_order(inner_limits_))),
      inner_(std::move(inner)),
      name_(fmt::format("{}, authenticated", inner_->name())) {
  sends_.slots.register_with(*inner_);
  receives_.slots.register_with(*inner_);
}

size_t AuthenticatedQueuePair::trailer_bytes() const {
  return kMessageProofBytes + (limits_.frame_bytes == 0 ? 0 : kLengthBytes);
}

size_t AuthenticatedQueuePair::wire_bytes(size_t payload_bytes) const {
  const size_t frame = limits_.frame_bytes;
  if (frame == 0) return payload_bytes + kMessageProofBytes;
  return std::min(frames_of(limits_, payload_bytes) + 1, inner_limits_.max_message_bytes / frame) * frame;
}

void AuthenticatedQueuePair::fail_pair(std::string what) {
  if (failure_.empty()) failure_ = std::move(what);
}

void AuthenticatedQueuePair::post_recv(std::span<const WorkRequest> chain) {
  if (!failure_.empty()) return;
  chain_.clear();
  for (const WorkRequest& request : chain) {
    COPRIME_CHECK(request.bytes <= limits_.max_message_bytes, "{} bytes in one message of at most {}", request.bytes,
                  limits_.max_message_bytes);
    const uint64_t number = receives_.next_number();
    receives_.posted.push_back({request, receives_.slots.take()});
    chain_.push_back({.id = number,
                      .data = receives_.posted.back().slot,
                      .bytes = wire_bytes(request.bytes),
                      .label = request.label});
  }
  inner_->post_recv(chain_);
}

void AuthenticatedQueuePair::post_send(std::span<const WorkRequest> chain) {
  if (!failure_.empty()) return;
  chain_.clear();
  for (const WorkRequest& request : chain) {
    COPRIME_CHECK(request.bytes <= limits_.max_message_bytes, "{} bytes in one message of at most {}", request.bytes,
                  limits_.max_message_bytes);
    const uint64_t number = sends_.next_number();
    sends_.posted.push_back({request, sends_.slots.take()});
    seal(request, number, sends_.posted.back().slot);
    chain_.push_back({.id = number,
                      .data = sends_.posted.back().slot,
                      .bytes = wire_bytes(request.bytes),
                      .tag = request.tag,
                      .label = request.label});
  }
  inner_->post_send(chain_);
}

// Payload, zeros up to the frames, its length, the proof.
void AuthenticatedQueuePair::seal(const WorkRequest& request, uint64_t number, std::byte* slot) const {
  const std::span<const std::byte> payload(request.data, request.bytes);
  const uint32_t tag = limits_.carries_tags ? request.tag : 0;
  const MessageProof proof = outgoing_.prove({number, request.label, tag}, payload);
  std::ranges::copy(payload, slot);
  std::byte* const trailer = slot + wire_bytes(payload.size()) - trailer_bytes();
  std::fill(slot + payload.size(), trailer, std::byte{0});
  const uint64_t length = payload.size();
  if (limits_.frame_bytes > 0) std::memcpy(trailer, &length, kLengthBytes);
  std::ranges::copy(proof, trailer + trailer_bytes() - kMessageProofBytes);
}

bool AuthenticatedQueuePair::open(const Staged& receive, uint64_t number, Completion& completion) const {
  if (completion.bytes < trailer_bytes() || completion.bytes > wire_bytes(receive.request.bytes)) return false;
  const size_t before_trailer = completion.bytes - trailer_bytes();
  const std::byte* const trailer = receive.slot + before_trailer;
  uint64_t length = before_trailer;
  if (limits_.frame_bytes > 0) std::memcpy(&length, trailer, kLengthBytes);
  if (length > before_trailer || length > receive.request.bytes) return false;
  const std::span<const std::byte> payload(receive.slot, length);
  MessageProof proof;
  std::memcpy(proof.data(), trailer + trailer_bytes() - kMessageProofBytes, proof.size());
  if (!incoming_.verify({number, receive.request.label, completion.tag}, payload, proof)) return false;
  std::ranges::copy(payload, receive.request.data);
  completion.bytes = length;
  return true;
}

AuthenticatedQueuePair::Staged AuthenticatedQueuePair::complete(Queue& queue) {
  const Staged staged = queue.posted.front();
  queue.posted.pop_front();
  queue.slots.give_back(staged.slot);
  ++queue.completed;
  return staged;
}

bool AuthenticatedQueuePair::translate(Completion& completion) {
  const bool is_send = completion.kind == Completion::Kind::kSend;
  Queue& queue = is_send ? sends_ : receives_;
  const uint64_t number = queue.completed + 1;
  if (completion.id != number || queue.posted.empty()) {
    fail_pair(fmt::format("is not reached: the device completed {} {} where {} comes", is_send ? "send" : "receive",
                          completion.id, number));
    return false;
  }
  const Staged staged = complete(queue);
  completion.id = staged.request.id;
  if (completion.status != 0) {
    if (inner_->failure().empty()) {
      fail_pair(fmt::format("is not reached: a completion has status {}", completion.status));
    }
    return true;
  }
  if (is_send) return staged.request.signaled;
  if (open(staged, number, completion)) return true;
  fail_pair("sent a message whose authentication fails: wrong key, or the link changes bytes");
  return false;
}

int AuthenticatedQueuePair::poll(std::span<Completion> completions) {
  int count = 0;
  while (failure_.empty() && count < static_cast<int>(completions.size())) {
    const std::span<Completion> room = completions.subspan(static_cast<size_t>(count));
    const int told = inner_->poll(room);
    for (int i = 0; i < told && failure_.empty(); ++i) {
      Completion completion = room[static_cast<size_t>(i)];
      if (translate(completion)) completions[static_cast<size_t>(count++)] = completion;
    }
    if (!inner_->failure().empty()) fail_pair(inner_->failure());
    if (told == 0) break;
  }
  return count;
}

}  // namespace coprime
