// One cache line a rank, shared by all ranks of a world on one host, whatever link joins them: how far each rank has
// come, and whom the world blames. A peer's deadline counts from the last time that its counter moved, so that a slow
// rank is no dead rank.
//
// The front creates its own page, which has the last word; ranks attach by descriptor, or share the object when they
// are threads. Ranks of other hosts have a page that mirrors it (progress_mirror.h).
//
// The verdict. Several ranks may give up at about the same time, on different ranks; the world blames one. On the
// front's page the first to settle wins, by one compare-and-exchange. On a mirroring page a rank posts its claim, the
// mirror carries it to the front, and only the mirror writes the verdict that comes back. Claims and verdicts carry the
// epoch of the links: when these are rebuilt with a higher one, what was said before counts no longer, and nobody needs
// to clear it.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/limits.h"
#include "transport/shared_memory.h"

namespace coprime {

// Whom the world blames, and who found it first (the same when a rank stopped for a reason of its own).
struct Culprit {
  int origin = 0;
  int blamed = 0;
  bool operator==(const Culprit&) const = default;
};

class ProgressPage {
 public:
  enum class Kind : uint8_t { kFronts, kMirror };
  static ProgressPage create(int ranks, Kind kind = Kind::kFronts);
  static ProgressPage attach(UniqueFd fd);  // Error(kLink) when the descriptor is no progress page

  int fd() const { return memory_.fd(); }
  int ranks() const { return ranks_; }
  Kind kind() const { return kind_; }

  // Counts up at every operation of the rank's device and at every gate. Only the rank itself writes it (or the mirror,
  // for a rank of another host); relaxed order does, since nobody reads anything else on the strength of it.
  std::atomic<uint64_t>& counter(int rank) const { return line(rank).counter; }
  void advance(int rank) const {  // the single writer needs no read-modify-write
    std::atomic<uint64_t>& count = counter(rank);
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  // What a rank that sleeps in a gate waits for, so that its peers do not take it for the culprit: it is late since
  // others are. A hint; written by the rank alone (or the mirror).
  struct Waiting {
    uint64_t sequence = 0;
    uint32_t peers = 0;  // a bit a rank; 0: it waits for nobody
  };
  void set_waiting(int rank, Waiting waiting) const {
    line(rank).waiting.store(waiting.sequence << kMaxRanks | waiting.peers, std::memory_order_relaxed);
  }
  Waiting waiting(int rank) const {
    const uint64_t word = line(rank).waiting.load(std::memory_order_relaxed);
    return {word >> kMaxRanks, static_cast<uint32_t>(word & ((1u << kMaxRanks) - 1))};
  }

  // A rank stops in this epoch and blames `blamed` (itself when it has another reason). Returns whom the world blames,
  // which every rank then names. On a mirroring page it waits for the front's word at most kSettleUs, and takes its own
  // for it when none comes.
  static constexpr int64_t kSettleUs = 80'000;
  Culprit settle(uint32_t epoch, int rank, int blamed) const;
  std::optional<Culprit> verdict(uint32_t epoch) const;

  // The rank's connection or process has ended: whoever waits for it need wait no longer. For good, in all epochs.
  void mark_gone(int rank) const { line(rank).gone.store(1, std::memory_order_release); }
  bool is_gone(int rank) const { return line(rank).gone.load(std::memory_order_acquire) != 0; }

  // For the mirror. Words are opaque; 0: nothing was said.
  uint64_t claim_word(int rank) const { return line(rank).claim.load(std::memory_order_acquire); }
  uint64_t verdict_word() const { return verdict_cell().load(std::memory_order_acquire); }
  void adopt_claim(int rank, uint64_t claim) const;  // the front's page: settles a rank's claim, if it is a valid one
  void adopt_verdict(uint64_t verdict) const;        // a mirroring page: newer epochs replace older ones
  void set_front_heard(int64_t time_us) const;       // a mirroring page: when the front was last heard; 0: it is gone
  void set_heard(int rank, int64_t time_us) const;   // the front's page: when the rank's mirror was last heard

  // A mirroring page: the front was not heard for so long, or is gone. Never true on the front's own.
  bool front_is_silent(int64_t for_us) const;
  // The front's page: nothing was heard of the rank's process, by way of its mirror, for so long. Never true of a rank
  // that has no mirror.
  bool is_silent(int rank, int64_t for_us) const;

 private:
  struct alignas(128) Line {
    std::atomic<uint64_t> counter;
    std::atomic<uint64_t> waiting;  // {sequence, peers}
    std::atomic<uint64_t> claim;    // a mirroring page: {epoch, 1 + blamed}, written by the rank alone
    std::atomic<int64_t> heard_us;  // the front's page: by the hub
    std::atomic<uint32_t> gone;
  };
  struct Header;
  static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

  ProgressPage(SharedMemory memory, int ranks, Kind kind) : memory_(std::move(memory)), ranks_(ranks), kind_(kind) {}
  Header& header() const;
  Line& line(int rank) const;
  std::atomic<uint64_t>& verdict_cell() const;
  std::optional<Culprit> decode(uint64_t word, uint32_t epoch) const;

  SharedMemory memory_;
  int ranks_ = 0;
  Kind kind_ = Kind::kFronts;
};

}  // namespace coprime
