// What the exchanges of all links share: the sequence number, which call may come next, and the error that ends it all.
//
// A gate runs out, publish or scatter, wait, release; the next out() may come as soon as wait() is over. Calls out of
// this order are broken invariants. After give_up() every call throws the same Error.
#pragma once

#include <array>
#include <optional>

#include "base/error.h"
#include "gate/exchange.h"
#include "gate/peer_watch.h"

namespace coprime {

class ExchangeState : public Exchange {
 public:
  ExchangeState(int rank, int ranks, size_t slot_bytes, uint32_t epoch);
  int rank() const final { return rank_; }
  int ranks() const final { return ranks_; }

  std::span<std::byte> out(size_t bytes) final;
  void publish(const GateEntry& entry, size_t bytes) final;
  void scatter(const GateEntry& entry, std::span<const size_t> ends) final;
  std::span<const std::span<const std::byte>> wait() final;
  void release() final;

 protected:
  // The outgoing slot of a sequence.
  virtual std::span<std::byte> slot(uint64_t sequence) = 0;
  // Sends sequence()'s slot: to rank r its part_of(r).
  virtual void send() = 0;
  // Fills the peers' views of sequence(), or calls give_up().
  virtual void receive() = 0;
  // The views of sequence() are no longer read.
  virtual void recycle() {}
  // Tells the peers what this rank found when it gives up; what it must report: that, or what another found first.
  virtual Verdict settle(const Verdict& found) { return found; }

  struct Part {
    size_t begin = 0, end = 0;
  };
  Part part_of(int peer) const { return parts_[static_cast<size_t>(peer)]; }
  bool scattered() const { return scattered_; }

  uint64_t sequence() const { return sequence_; }
  uint32_t epoch() const { return epoch_; }
  uint32_t tag() const { return tag_; }
  uint32_t all_peers() const { return ((1u << ranks_) - 1) & ~(1u << rank_); }
  void set_view(int peer, std::span<const std::byte> view) { views_[static_cast<size_t>(peer)] = view; }

  [[noreturn]] void give_up(const Verdict& found);
  // Gives up unless the peer's publication of sequence() was made at the same gate, in the same way.
  void check_tag(int peer, uint32_t tag);

 private:
  enum class Stage : uint8_t { kIdle, kPublished, kSeen };
  void begin_gate(const GateEntry& entry, bool scattered);
  void throw_if_broken() const {
    if (error_) [[unlikely]]
      throw *error_;
  }

  int rank_, ranks_;
  size_t slot_bytes_;
  uint32_t epoch_;
  uint64_t sequence_ = 0;  // the last published
  Stage stage_ = Stage::kIdle;
  GateEntry entry_;
  uint32_t tag_ = 0;
  bool scattered_ = false;
  std::array<Part, kMaxRanks> parts_ = {};
  std::array<std::span<const std::byte>, kMaxRanks> views_ = {};
  std::optional<Error> error_;
};

}  // namespace coprime
