// One gate's movement of bytes between the ranks of a world, whatever joins them: every rank publishes one contribution
// and sees all of them, in rank order. Owns the outgoing slots and the one sequence of all gates.
//
// Ranks of one host share a region of memory (Window) and read each other's slots in place; to every other peer leads a
// PeerLink. A gate is complete when all peers' contributions are there: the pairwise machines know nothing of each
// other.
//
// A gate runs out, publish or scatter, wait, release; the next out() may come as soon as wait() is over. Calls out of
// this order are broken invariants. Nothing is ever returned after a deadline has passed: wait() throws Error(kLink)
// naming rank, peer, layer, gate, sequence and link, and every later call throws the same.
//
// Two outgoing slots, by parity of the sequence, are enough on every link. slot(s + 2) is written after wait() for
// s + 1 is over, so that every peer has published s + 1, which it does after its last read of this rank's s: over
// shared memory as window.h says; over a queue pair the peer's s + 1 proves that s was received, whatever the
// completions of the sends say.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "gate/constants.h"
#include "gate/peer_link.h"
#include "gate/peer_watch.h"
#include "gate/schedule.h"
#include "tensor/buffer.h"
#include "transport/progress_page.h"
#include "transport/queue_pair.h"
#include "transport/shm/window.h"
#include "transport/wait_policy.h"

namespace coprime {

// The way to one peer that shares no memory with this rank.
struct PeerConnection {
  UniqueFd socket;                  // the mesh's connection to the peer
  std::unique_ptr<QueuePair> pair;  // null: frames over the socket (TCP); else the socket carries the barriers
};

// What joins one rank to its world. A peer is in `region_ranks` or has a connection; who is neither takes no part in
// the gates: nothing goes there, and its view is empty.
struct WorldLinks {
  int rank = 0, ranks = 1;
  std::shared_ptr<const ShmRegion> region;  // of the ranks of this host; null: none
  std::vector<int> region_ranks;            // the region's ranks in its order, this one among them
  std::vector<PeerConnection> peers;        // by rank; empty where there is none
  bool windowed = false;  // some pair of the world (not only of this rank) needs windows of posted receives
};

struct ExchangeSettings {
  WaitPolicy wait;
  int timeout_ms = DS4_TP_DEFAULT_GATE_TIMEOUT_MS;  // since the awaited peer's progress counter last moved
  uint32_t epoch = 1;                               // grows when the links of a world are rebuilt
};

class Exchange {
 public:
  // A slot holds the schedule's largest gate.
  Exchange(WorldLinks links, GateSchedule schedule, std::shared_ptr<const ProgressPage> progress,
           const ExchangeSettings& settings);
  Exchange(const Exchange&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  const GateSchedule& schedule() const { return schedule_; }
  bool windowed() const { return windowed_; }
  uint64_t sequence() const { return sequence_; }  // of the last gate that was published

  // A step of the schedule begins, of so many rows; the next one is expected to have next_rows. A wrong expectation
  // costs a barrier where receives are posted ahead, and is otherwise harmless; all ranks must say the same.
  void begin_step(int rows, int next_rows);

  // This rank's outgoing slot for the next gate: at least `bytes`, aligned to 64.
  std::span<std::byte> out(size_t bytes);

  // Sends the slot's first `bytes` to all peers, at the schedule's gate `entry`. Rank r's contribution has incoming[r]
  // bytes (this rank's own is not looked at).
  void publish(int entry, size_t bytes, std::span<const size_t> incoming);

  // Sends to each peer its own part of the slot: rank r gets bytes [ends[r - 1], ends[r]), rank 0 from 0.
  void scatter(int entry, std::span<const size_t> ends, std::span<const size_t> incoming);

  // All ranks' contributions to this rank in rank order (its own among them), each as long as announced, valid until
  // release(). The next gate's out() may be called and written before release().
  std::span<const std::span<const std::byte>> wait();

  void release();

  // This rank stops here for a reason of its own: its peers are told at once, and every later call throws `error`.
  [[noreturn]] void abandon(const Error& error);

  const char* link(int peer) const;  // "shm", "tcp", "verbs RC", ...; "none" for the rank itself
  uint64_t rearms() const;           // windows that were drained and armed again since a step was not as expected

 private:
  enum class Stage : uint8_t { kIdle, kPublished, kSeen };
  struct Part {
    size_t begin = 0, end = 0;
  };

  static constexpr size_t kHeadroom = 64;  // and the slots stay aligned
  std::span<std::byte> slot(uint64_t sequence);
  void begin_gate(int entry, bool scattered, std::span<const size_t> incoming);
  void send();
  void receive();
  void sleep(uint32_t window_missing, uint32_t link_missing);
  uint32_t not_yet_seen(uint32_t missing) const;
  bool poll_link(int peer);
  void view_window_peer(int peer);

  Part part_of(int peer) const { return parts_[static_cast<size_t>(peer)]; }
  const GateEntry& gate() const { return schedule_[static_cast<size_t>(entry_)]; }
  PeerLink& peer_link(int peer) { return *peer_links_[static_cast<size_t>(peer)]; }
  int region_index(int peer) const { return region_index_[static_cast<size_t>(peer)]; }
  void check_tag(int peer, uint32_t tag);
  void check_bytes(int peer, size_t bytes);
  void set_view(int peer, std::span<const std::byte> view) { views_[static_cast<size_t>(peer)] = view; }
  [[noreturn]] void give_up(const Verdict& found);
  void throw_if_broken() const {
    if (error_) [[unlikely]]
      throw *error_;
  }

  const int rank_, ranks_;
  const bool windowed_;
  const uint32_t epoch_;
  const GateSchedule schedule_;
  const size_t slot_bytes_;

  std::optional<Window> window_;
  std::array<int, kMaxRanks> region_index_ = {};  // -1: not in the region
  uint32_t window_peers_ = 0, link_peers_ = 0;    // a bit a peer
  Buffer slots_;                                  // the outgoing slots, where there is no window
  size_t slot_stride_ = 0;                        // each with kHeadroom before it
  std::array<std::unique_ptr<PeerLink>, kMaxRanks> peer_links_;

  PeerWatch watch_;
  WaitPolicy policy_;

  uint64_t sequence_ = 0;  // the last published
  Stage stage_ = Stage::kIdle;
  int entry_ = 0;
  uint32_t tag_ = 0;
  bool scattered_ = false;
  std::array<Part, kMaxRanks> parts_ = {};
  std::array<size_t, kMaxRanks> incoming_ = {};
  std::array<std::span<const std::byte>, kMaxRanks> views_ = {};
  std::optional<Error> error_;
};

}  // namespace coprime
