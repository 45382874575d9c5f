// What a PE looked like at the heads of a loop's last iterations, and whether it repeats itself.
//
// Durations are constants and everything else is a maximum, so a PE whose state relative to its clock comes back
// repeats what lies between, tick for tick. A moment that is not after the present event matters no more: whatever
// starts later starts by something that is after it.
#pragma once

#include <array>
#include <vector>

#include "sim/moment.h"
#include "sim/totals.h"

namespace coprime::sim {

struct Snapshot {
  Tick now = 0;  // of the event at which it was taken
  Moment cpu;
  std::vector<Moment> moments;
  std::vector<Tick> ticks;        // likewise, of which no parts are kept
  std::vector<uint64_t> numbers;  // counts relative to each other, shapes, addresses
  Totals totals;
};

class LoopHistory {
 public:
  // The next snapshot to fill. It becomes the last one.
  Snapshot& add() {
    ++count_;
    return at(0);
  }
  // `back` heads ago; 0: the last.
  Snapshot& at(size_t back) { return snapshots_[(count_ - 1 - back) % snapshots_.size()]; }
  void clear() { count_ = 0; }

  // The least number of iterations after which the state has come back, twice in a row, with the same part of the
  // critical path added each time; 0: it has not. A multiple of the turns that the kernel's buffers take.
  size_t period(size_t turns);

 private:
  static constexpr size_t kLongest = 4;

  bool repeats(Snapshot& now, Snapshot& before, Snapshot& long_before) const;

  std::array<Snapshot, 2 * kLongest + 1> snapshots_;
  size_t count_ = 0;
};

}  // namespace coprime::sim
