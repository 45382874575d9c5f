#include "gate/bulk_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "gate/posted_window.h"

namespace coprime {
namespace {

constexpr int64_t kChain = DS4_TP_RDMA_BULK_SLOTS;

int64_t messages(size_t bytes, size_t cap) { return bytes == 0 ? 0 : chunk_count(bytes, cap); }

int64_t divide_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }

}  // namespace

PairFault BulkExchange::begin(const WindowPlan& plan, const BulkBuffers& buffers, const Flight& flight,
                              bool window_active) {
  depth_ = plan.bulk_window_messages();
  if (buffers.staged()) {
    const size_t staging = std::min(buffers.staging_in.size(), buffers.staging_out.size());
    depth_ = static_cast<int64_t>(std::min<size_t>(static_cast<size_t>(depth_), staging / plan.chunk_bytes()));
  }
  if (window_active || depth_ == 0 || buffers.in.size() < flight.incoming)
    return {.kind = PairFaultKind::kBulkRefused, .id = flight.sequence};
  const size_t cap = plan.chunk_bytes();
  windows_ = divide_up(std::max(messages(flight.out.size(), cap), messages(flight.incoming, cap)), depth_);
  window_ = 0;
  return {};
}

int64_t BulkExchange::messages_of_window(const WindowPlan& plan, size_t bytes) const {
  return std::clamp<int64_t>(messages(bytes, plan.chunk_bytes()) - window_ * depth_, 0, depth_);
}
int64_t BulkExchange::incoming(const WindowPlan& plan, const Flight& flight) const {
  return messages_of_window(plan, flight.incoming);
}
int64_t BulkExchange::outgoing(const WindowPlan& plan, const Flight& flight) const {
  return messages_of_window(plan, flight.out.size());
}
size_t BulkExchange::window_begin(const WindowPlan& plan) const {
  return static_cast<size_t>(window_ * depth_) * plan.chunk_bytes();
}

void BulkExchange::post_receives(const WindowPlan& plan, const BulkBuffers& buffers, const Flight& flight,
                                 PairPort& port) {
  to_receive_ = incoming(plan, flight);
  to_send_ = outgoing(plan, flight);
  received_ = posted_ = sent_ = 0;
  sends_open_ = 0;
  received_map_ = sent_map_ = {};
  const size_t begin = buffers.staged() ? window_begin(plan) : 0;
  std::byte* const target = buffers.staged() ? buffers.staging_in.data() : buffers.in.data();
  std::array<WorkRequest, kChain> chain;
  for (int64_t first = 0; first < to_receive_; first += kChain) {
    const int64_t count = std::min(kChain, to_receive_ - first);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t chunk = window_ * depth_ + first + i;
      const Piece piece = chunk_at(flight.incoming, plan.chunk_bytes(), chunk);
      chain[static_cast<size_t>(i)] = {.id = kBulkTag | static_cast<uint64_t>(first + i),
                                       .data = target + (piece.begin - begin),
                                       .bytes = piece.bytes,
                                       .label = chunk_label(flight.sequence, chunk)};
    }
    port.post_recv({chain.data(), static_cast<size_t>(count)});
  }
}

Barrier BulkExchange::barrier(const Flight& flight) const {
  return {.kind = kBulkWindowBarrier, .place = static_cast<uint32_t>(window_ + 1), .sequence = flight.sequence};
}

void BulkExchange::open_sends(const WindowPlan& plan, const BulkBuffers& buffers, const Flight& flight) {
  sends_open_ = 1;
  const size_t begin = window_begin(plan);
  if (!buffers.staged() || to_send_ == 0) return;
  const size_t bytes = std::min(flight.out.size() - begin, static_cast<size_t>(to_send_) * plan.chunk_bytes());
  std::memcpy(buffers.staging_out.data(), flight.out.data() + begin, bytes);
}

void BulkExchange::post_sends(const WindowPlan& plan, const BulkBuffers& buffers, const Flight& flight,
                              PairPort& port) {
  if (sends_open_ == 0) return;
  const size_t begin = buffers.staged() ? window_begin(plan) : 0;
  std::byte* const source = buffers.staged() ? buffers.staging_out.data() : flight.out.data();
  while (posted_ < to_send_) {
    const int64_t room = plan.send_messages() - (posted_ - sent_);
    const int64_t count = std::min({kChain, to_send_ - posted_, room});
    if (count <= 0) return;
    std::array<WorkRequest, kChain> chain;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t chunk = window_ * depth_ + posted_ + i;
      const Piece piece = chunk_at(flight.out.size(), plan.chunk_bytes(), chunk);
      chain[static_cast<size_t>(i)] = {.id = kBulkTag | static_cast<uint64_t>(posted_ + i),
                                       .data = source + (piece.begin - begin),
                                       .bytes = piece.bytes,
                                       .tag = chunk_tag(flight.tag, flight.sequence, chunk),
                                       .label = chunk_label(flight.sequence, chunk)};
    }
    port.post_send({chain.data(), static_cast<size_t>(count)});
    posted_ += count;
  }
}

bool BulkExchange::test_and_set(SeenMap& seen, uint64_t index) {
  uint64_t& word = seen[index / 64];
  const uint64_t bit = uint64_t{1} << (index % 64);
  const bool was = (word & bit) != 0;
  word |= bit;
  return was;
}

PairFault BulkExchange::on_receive(const WindowPlan& plan, const Flight& flight, const Completion& completion) {
  const uint64_t index = completion.id ^ kBulkTag;
  if (index >= static_cast<uint64_t>(to_receive_))
    return {.kind = PairFaultKind::kUnexpectedReceive, .id = completion.id};
  if (test_and_set(received_map_, index)) return {.kind = PairFaultKind::kDuplicateReceive, .id = completion.id};
  const int64_t chunk = window_ * depth_ + static_cast<int64_t>(index);
  const size_t expected = chunk_at(flight.incoming, plan.chunk_bytes(), chunk).bytes;
  if (completion.bytes != expected) {
    return {
        .kind = PairFaultKind::kReceiveLength, .id = completion.id, .found = completion.bytes, .expected = expected};
  }
  if (plan.limits().carries_tags && completion.tag != chunk_tag(flight.tag, flight.sequence, chunk))
    return wrong_message(completion.tag, flight.sequence, chunk);
  ++received_;
  return {};
}

PairFault BulkExchange::on_send(const Completion& completion) {
  const uint64_t index = completion.id ^ kBulkTag;
  if (index >= static_cast<uint64_t>(posted_)) return {.kind = PairFaultKind::kUnexpectedSend, .id = completion.id};
  if (test_and_set(sent_map_, index)) return {.kind = PairFaultKind::kDuplicateSend, .id = completion.id};
  ++sent_;
  return {};
}

bool BulkExchange::end_window(const WindowPlan& plan, const BulkBuffers& buffers, const Flight& flight) {
  if (sends_open_ == 0 || received_ < to_receive_ || sent_ < to_send_) return false;
  if (buffers.staged() && to_receive_ > 0) {
    const size_t begin = window_begin(plan);
    const size_t bytes = std::min(flight.incoming - begin, static_cast<size_t>(to_receive_) * plan.chunk_bytes());
    std::memcpy(buffers.in.data() + begin, buffers.staging_in.data(), bytes);
  }
  ++window_;
  sends_open_ = 0;
  return true;
}

std::string BulkExchange::text() const {
  return fmt::format("window {} of {}: receives {}/{}, sends {}/{}", std::min(window_ + 1, windows_), windows_,
                     received_, to_receive_, sent_, to_send_);
}

}  // namespace coprime
