#include "gate/posted_window.h"

#include <algorithm>

#include "base/check.h"

namespace coprime {
namespace {
constexpr int64_t kWindowChain = 4;  // receives of one call; a decode vector has at most two
}  // namespace

void PostedWindow::open(uint64_t step_first, uint64_t next_gate, RowClass now, RowClass next, uint64_t id_tag) {
  step_first_ = step_first;
  done_ = posted_ = next_gate - 1;
  chunk_ = 0;
  id_tag_ = id_tag;
  now_ = now;
  next_ = next;
}

bool PostedWindow::enter_step(const WindowPlan& plan, uint64_t step_first, RowClass now, RowClass next) {
  COPRIME_CHECK(posted_ >= step_first, "receives up to {}, a step from {}", posted_, step_first);
  const bool reaches_beyond = posted_ >= step_first + static_cast<uint64_t>(plan.entries());
  if (now != next_ || (reaches_beyond && next != next_)) return false;
  step_first_ = step_first;
  now_ = now;
  next_ = next;
  return true;
}

RowClass PostedWindow::class_of(const WindowPlan& plan, uint64_t sequence) const {
  return sequence - step_first_ < static_cast<uint64_t>(plan.entries()) ? now_ : next_;
}

const WindowPlan::Gate& PostedWindow::gate(const WindowPlan& plan, uint64_t sequence) const {
  uint64_t entry = sequence - step_first_;
  const auto entries = static_cast<uint64_t>(plan.entries());
  const RowClass row_class = entry < entries ? now_ : next_;
  while (entry >= entries) entry -= entries;
  return plan.gate(static_cast<int64_t>(entry), row_class);
}

void PostedWindow::post_until(const WindowPlan& plan, std::span<const std::span<std::byte>> in, PairPort& port,
                              uint64_t last) {
  if (verifies()) last = std::min(last, step_first_ + static_cast<uint64_t>(plan.entries()) - 1);
  std::array<WorkRequest, kWindowChain> chain;
  for (; posted_ < last; ++posted_) {
    const uint64_t sequence = posted_ + 1;
    if (!verifies() && plan.service(class_of(plan, sequence)) != Service::kDecodeWindow) return;
    const WindowPlan::Gate& gate_plan = gate(plan, sequence);
    for (int64_t first = 0; first < gate_plan.chunks; first += kWindowChain) {
      const int64_t count = std::min(kWindowChain, gate_plan.chunks - first);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t chunk = first + i;
        const Piece piece = chunk_at(gate_plan.capacity, plan.chunk_bytes(), chunk);
        WorkRequest& request = chain[static_cast<size_t>(i)];
        request.id = chunk + 1 == gate_plan.chunks ? id_tag_ | sequence : 0;
        request.data = in[sequence & 1].data() + piece.begin;
        request.bytes = piece.bytes;
        request.label = chunk_label(sequence, chunk);
      }
      port.post_recv({chain.data(), static_cast<size_t>(count)});
    }
  }
}

PairFault PostedWindow::on_receive(const WindowPlan& plan, const Completion& completion, uint64_t ahead) {
  if (done_ + 1 > ahead) [[unlikely]]
    return {.kind = PairFaultKind::kPeerAhead, .id = completion.id, .expected = ahead};
  return accept(plan, completion, false);
}

PairFault PostedWindow::on_dummy(const WindowPlan& plan, const Completion& completion) {
  return accept(plan, completion, true);
}

PairFault PostedWindow::accept(const WindowPlan& plan, const Completion& completion, bool dummy) {
  const uint64_t sequence = done_ + 1;
  if (sequence > posted_) [[unlikely]]
    return {.kind = PairFaultKind::kUnexpectedReceive, .id = completion.id};
  const WindowPlan::Gate& gate_plan = gate(plan, sequence);
  const bool last = chunk_ + 1 == gate_plan.chunks;
  const uint64_t expected_id = last ? id_tag_ | sequence : 0;
  if (completion.id != expected_id) [[unlikely]] {
    const uint64_t repeated = completion.id ^ id_tag_;
    const bool duplicate = completion.id != 0 && repeated <= done_;
    return {.kind = duplicate ? PairFaultKind::kDuplicateReceive : PairFaultKind::kUnexpectedReceive,
            .id = completion.id,
            .expected = expected_id};
  }
  const size_t room = chunk_at(gate_plan.capacity, plan.chunk_bytes(), chunk_).bytes;
  if (completion.bytes == 0) [[unlikely]]
    return {.kind = PairFaultKind::kEmptyReceive, .id = id_tag_ | sequence};
  const size_t longest = dummy ? message_bytes(1, room, plan.limits()) : room;
  if (completion.bytes > longest || (dummy && completion.bytes != longest)) [[unlikely]] {
    return {.kind = PairFaultKind::kReceiveLength,
            .id = id_tag_ | sequence,
            .found = completion.bytes,
            .expected = longest};
  }
  const size_t parity = sequence & 1;
  const uint32_t digest = completion.tag & kDigestMask;
  if (chunk_ == 0) {
    bytes_[parity] = 0;
    digest_[parity] = digest;
  }
  if (plan.limits().carries_tags &&
      (completion.tag != (chunk_place(sequence, chunk_) | digest_[parity]) || dummy != (digest == 0))) [[unlikely]]
    return wrong_message(completion.tag, sequence, chunk_);
  bytes_[parity] += completion.bytes;
  if (last) {
    done_ = sequence;
    chunk_ = 0;
  } else {
    ++chunk_;
  }
  return {};
}

PairFault PostedWindow::check(const WindowPlan& plan, const Flight& flight) const {
  const size_t parity = flight.sequence & 1;
  const WindowPlan::Gate& gate_plan = gate(plan, flight.sequence);
  if (plan.limits().carries_tags && digest_[parity] != gate_digest(flight.tag)) [[unlikely]]
    return wrong_message(chunk_place(flight.sequence, 0) | digest_[parity], flight.sequence, 0);
  const size_t expected = total_message_bytes(flight.incoming, gate_plan.capacity, plan.chunk_bytes(), plan.limits());
  if (bytes_[parity] != expected) [[unlikely]] {
    return {.kind = PairFaultKind::kReceiveLength,
            .id = id_tag_ | flight.sequence,
            .found = bytes_[parity],
            .expected = expected};
  }
  return {};
}

uint64_t PostedWindow::posted_bytes(const WindowPlan& plan) const {
  uint64_t bytes = 0;
  for (uint64_t sequence = done_ + 1; sequence <= posted_; ++sequence) bytes += gate(plan, sequence).capacity;
  return bytes;
}

uint64_t PostedWindow::posted_messages(const WindowPlan& plan, uint64_t after) const {
  uint64_t messages = 0;
  for (uint64_t sequence = after + 1; sequence <= posted_; ++sequence)
    messages += static_cast<uint64_t>(gate(plan, sequence).chunks);
  return messages;
}

uint64_t PostedWindow::arrived_messages(const WindowPlan& plan, uint64_t after) const {
  uint64_t messages = static_cast<uint64_t>(chunk_);
  for (uint64_t sequence = after + 1; sequence <= done_; ++sequence)
    messages += static_cast<uint64_t>(gate(plan, sequence).chunks);
  return messages;
}

}  // namespace coprime
