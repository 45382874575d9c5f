#include "gate/exchange_state.h"

#include "base/check.h"

namespace coprime {
namespace {

constexpr uint32_t kScattered = 1u << 31;
constexpr uint32_t kLayerMask = 0xfffff;

// Which gate, in one word that travels with the bytes.
uint32_t make_tag(const GateEntry& entry, bool scattered) {
  return (scattered ? kScattered : 0) | static_cast<uint32_t>(entry.kind) << 20 |
         (static_cast<uint32_t>(entry.layer + 1) & kLayerMask);
}

std::string tag_text(uint32_t tag) {
  const GateEntry entry = {.kind = static_cast<GateKind>((tag & ~kScattered) >> 20),
                           .layer = static_cast<int>(tag & kLayerMask) - 1};
  return fmt::format("{}{}", gate_text(entry), (tag & kScattered) != 0 ? ", in parts" : "");
}

}  // namespace

ExchangeState::ExchangeState(int rank, int ranks, size_t slot_bytes, uint32_t epoch)
    : rank_(rank), ranks_(ranks), slot_bytes_(slot_bytes), epoch_(epoch) {
  COPRIME_CHECK(ranks >= 1 && ranks <= kMaxRanks && rank >= 0 && rank < ranks, "rank {} of {}", rank, ranks);
}

std::span<std::byte> ExchangeState::out(size_t bytes) {
  throw_if_broken();
  COPRIME_CHECK(stage_ != Stage::kPublished, "out() between publish() and wait()");
  COPRIME_CHECK(bytes <= slot_bytes_, "{} bytes in a slot of {}", bytes, slot_bytes_);
  return slot(sequence_ + 1);
}

void ExchangeState::begin_gate(const GateEntry& entry, bool scattered) {
  throw_if_broken();
  COPRIME_CHECK(stage_ == Stage::kIdle, "a gate begins before the last one is released");
  ++sequence_;
  stage_ = Stage::kPublished;
  entry_ = entry;
  tag_ = make_tag(entry, scattered);
  scattered_ = scattered;
}

void ExchangeState::publish(const GateEntry& entry, size_t bytes) {
  COPRIME_CHECK(bytes <= slot_bytes_, "{} bytes in a slot of {}", bytes, slot_bytes_);
  begin_gate(entry, false);
  for (int peer = 0; peer < ranks_; ++peer) parts_[static_cast<size_t>(peer)] = {0, bytes};
  send();
}

void ExchangeState::scatter(const GateEntry& entry, std::span<const size_t> ends) {
  COPRIME_CHECK(static_cast<int>(ends.size()) == ranks_, "{} ends for {} ranks", ends.size(), ranks_);
  begin_gate(entry, true);
  size_t begin = 0;
  for (size_t peer = 0; peer < ends.size(); ++peer) {
    COPRIME_CHECK(begin <= ends[peer] && ends[peer] <= slot_bytes_, "a part from {} to {}", begin, ends[peer]);
    parts_[peer] = {begin, ends[peer]};
    begin = ends[peer];
  }
  send();
}

std::span<const std::span<const std::byte>> ExchangeState::wait() {
  throw_if_broken();
  COPRIME_CHECK(stage_ == Stage::kPublished, "wait() without publish()");
  receive();
  const Part own = part_of(rank_);
  set_view(rank_, slot(sequence_).subspan(own.begin, own.end - own.begin));
  stage_ = Stage::kSeen;
  return {views_.data(), static_cast<size_t>(ranks_)};
}

void ExchangeState::release() {
  throw_if_broken();
  COPRIME_CHECK(stage_ == Stage::kSeen, "release() without wait()");
  stage_ = Stage::kIdle;
  recycle();
}

void ExchangeState::give_up(const Verdict& found) {
  const Verdict verdict = settle(found);
  error_.emplace(ErrorKind::kLink, fmt::format("rank {} {} at {} (sequence {}) over {}: {}", rank_, verdict.what,
                                               gate_text(entry_), sequence_, link(), verdict.why));
  throw *error_;
}

void ExchangeState::check_tag(int peer, uint32_t peer_tag) {
  if (peer_tag == tag_) return;
  give_up({peer, "stopped",
           fmt::format("gate order broke: rank {} is at {}, rank {} at {}: all ranks must run the same program", peer,
                       tag_text(peer_tag), rank_, tag_text(tag_))});
}

}  // namespace coprime
