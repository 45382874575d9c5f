// How ranks of one host tell each other small things before they share anything larger: one round after the other, each
// rank puts up a note and reads all. A round is a barrier, too.
//
// The board is a shared window (transport/shm/window.h has the protocol), so that it serves threads and processes
// alike.
#pragma once

#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "transport/shm/window.h"

namespace coprime {

class RankBoard {
 public:
  static constexpr size_t kNoteBytes = 4096;

  // What the ranks share: made once, before they part.
  static std::shared_ptr<const ShmRegion> make_region(int ranks) {
    return std::make_shared<const ShmRegion>(ShmRegion::create(ranks, kNoteBytes));
  }

  RankBoard(std::shared_ptr<const ShmRegion> region, int rank, int timeout_ms)
      : window_(std::move(region), rank), timeout_ms_(timeout_ms) {}

  int rank() const { return window_.rank(); }
  int ranks() const { return window_.ranks(); }

  // All ranks' notes in rank order. Error(kLink) naming the ranks that did not put up theirs in time; the board is of
  // no use after that.
  template <class Note>
  std::vector<Note> exchange(const Note& mine) {
    static_assert(std::is_trivially_copyable_v<Note> && sizeof(Note) <= kNoteBytes);
    std::memcpy(window_.slot(sequence_ + 1).data(), &mine, sizeof mine);
    finish_round();
    std::vector<Note> notes(static_cast<size_t>(ranks()));
    for (int peer = 0; peer < ranks(); ++peer)
      std::memcpy(&notes[static_cast<size_t>(peer)], window_.peer_slot(peer, sequence_), sizeof(Note));
    return notes;
  }
  void barrier() { exchange(char{0}); }

 private:
  void finish_round();

  Window window_;
  int timeout_ms_;
  uint64_t sequence_ = 0;
};

}  // namespace coprime
