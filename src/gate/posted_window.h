// The receives that are posted for a run of consecutive gates, and what has arrived in them: the receiving half of a
// decode window and of a verify window.
//
// Only the last chunk of a gate carries its id, the others 0, so that the watermark moves when the whole gate is
// there. Messages arrive in the order of the posts, so that the k-th message meets the k-th receive: every completion
// is compared with the one receive whose turn it is, and anything else (an id that is not next, a repeated one, a
// message that is empty or too long, or that carries another gate's tag) is a fault.
//
// Two buffers, by parity of the sequence, serve all receives, however many are posted: the peer sends s + 2 only after
// it has this rank's s + 1, which this rank sends only after it has released the views of s. A dummy may land anywhere:
// dummies are sent between two barriers, when nothing is being read.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "gate/flight.h"
#include "gate/pair_fault.h"
#include "gate/pair_port.h"
#include "gate/window_plan.h"

namespace coprime {

// The word that travels with each message where tags are carried: the sequence modulo 4096 (bits 20 to 31), the chunk
// modulo 1024 (10 to 19), and a digest of the gate (0 to 9), which is 0 for dummies and nothing else.
inline constexpr int kSequenceTagBits = 12, kChunkTagBits = 10, kDigestBits = 10;
inline constexpr uint32_t kDigestMask = (1u << kDigestBits) - 1;
constexpr uint32_t gate_digest(uint32_t gate_tag) {
  const uint32_t digest = gate_tag * 0x9E3779B1u >> (32 - kDigestBits);
  return digest == 0 ? 1 : digest;
}
constexpr uint32_t chunk_place(uint64_t sequence, int64_t chunk) {
  return static_cast<uint32_t>(sequence) << (kChunkTagBits + kDigestBits) |
         (static_cast<uint32_t>(chunk) & ((1u << kChunkTagBits) - 1)) << kDigestBits;
}
constexpr uint32_t chunk_tag(uint32_t gate_tag, uint64_t sequence, int64_t chunk) {
  return chunk_place(sequence, chunk) | gate_digest(gate_tag);
}
constexpr uint32_t dummy_tag(uint64_t sequence, int64_t chunk) { return chunk_place(sequence, chunk); }
// A message with this tag where chunk `chunk` of `sequence` comes.
constexpr PairFault wrong_message(uint32_t tag, uint64_t sequence, int64_t chunk) {
  return {.kind = PairFaultKind::kWrongMessage, .id = sequence, .found = tag, .expected = static_cast<uint64_t>(chunk)};
}
// What both ends know of a message beforehand: WorkRequest::label.
constexpr uint64_t chunk_label(uint64_t sequence, int64_t chunk) {
  return sequence << 24 | (static_cast<uint64_t>(chunk) & 0xffffff);
}

class PostedWindow {
 public:
  // A window in the step whose first gate is `step_first`; no receive is posted below `next_gate`. Gates from the next
  // step on have the class `next`. id_tag: 0, or kVerifyTag: then nothing is posted beyond the step.
  void open(uint64_t step_first, uint64_t next_gate, RowClass now, RowClass next, uint64_t id_tag);

  // The next step has begun with `step_first`, into which receives reach: whether they fit the classes of this step,
  // and of the next one where they reach that far. If not, the window is as it was, and can only be drained.
  bool enter_step(const WindowPlan& plan, uint64_t step_first, RowClass now, RowClass next);

  // Posts the receives of all gates up to `last`, in order, as far as their classes have a decode window.
  void post_until(const WindowPlan& plan, std::span<const std::span<std::byte>> in, PairPort& port, uint64_t last);

  // The next message. `ahead`: the latest gate of which the peer may have sent something.
  PairFault on_receive(const WindowPlan& plan, const Completion& completion, uint64_t ahead);
  // The same, where the next message must be a dummy.
  PairFault on_dummy(const WindowPlan& plan, const Completion& completion);

  // Of a gate that has arrived: whether it is what was announced.
  PairFault check(const WindowPlan& plan, const Flight& flight) const;

  uint64_t done() const { return done_; }      // all chunks of all gates up to it have arrived
  uint64_t posted() const { return posted_; }  // receives are posted up to it
  bool verifies() const { return id_tag_ != 0; }
  uint64_t id_tag() const { return id_tag_; }

  const WindowPlan::Gate& gate(const WindowPlan& plan, uint64_t sequence) const;
  uint64_t posted_bytes(const WindowPlan& plan) const;                      // of the receives above done()
  uint64_t posted_messages(const WindowPlan& plan, uint64_t after) const;   // of the gates in (after, posted()]
  uint64_t arrived_messages(const WindowPlan& plan, uint64_t after) const;  // of them, those that have arrived

 private:
  PairFault accept(const WindowPlan& plan, const Completion& completion, bool dummy);
  RowClass class_of(const WindowPlan& plan, uint64_t sequence) const;

  uint64_t step_first_ = 1;
  uint64_t done_ = 0, posted_ = 0;
  int64_t chunk_ = 0;  // chunks of done_ + 1 that have arrived
  uint64_t id_tag_ = 0;
  RowClass now_ = RowClass::kBulk, next_ = RowClass::kBulk;
  std::array<uint64_t, 2> bytes_ = {};   // by parity: of the chunks that have arrived
  std::array<uint32_t, 2> digest_ = {};  // by parity: of the gate, as those chunks say
};

}  // namespace coprime
