// One rank's end of the gates of a world: it owns the sequence number, runs one exchange a gate, and folds in rank
// order.
//
// Refuses a gate out of the schedule's order ("gate order broke"), and every use after an error: the exchange's errors
// are sticky, since nothing may be summed after a time-out, and its peers are told.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "collective/gate_observer.h"
#include "device/device.h"
#include "gate/exchange.h"
#include "gate/schedule.h"

namespace coprime {

// What happens to a gate's sum while it is still in the cache: residual += sum, then normed = rms_norm(residual).
struct Epilogue {
  View residual;
  const float* norm_weight = nullptr;  // null: no norm
  float eps = 0;
  View normed;
};

// Columns [first, first + count) of a gathered row that a rank contributes.
struct GatherPart {
  int64_t first = 0, count = 0;
};

struct GateStatistics {
  uint64_t gates = 0;
  int64_t time_ns = 0;  // from publish to the end of the fold
  uint64_t bytes = 0;   // sent by this rank to each peer
};

// Which way a sum goes: rows in bulk are summed by owners (each rank sums some of the rows and all gather the sums), a
// few are pushed to all (each rank sums all). Pure, so that all ranks choose alike; both ways give the same bits. In a
// world with windows of posted receives (Exchange::windowed()) rows of a window are pushed: one exchange a gate.
bool sums_by_owner(int rows, int64_t row_bytes, int ranks, bool windowed);

class Communicator {
 public:
  explicit Communicator(std::unique_ptr<Exchange> exchange);

  int rank() const { return exchange_->rank(); }
  int ranks() const { return exchange_->ranks(); }
  size_t gates() const { return schedule_.size(); }  // of a step

  // Where the caller writes its contribution to the gate `entry`, [rows, row_bytes / 4]: the outgoing slot itself.
  View slot(int entry, int rows);

  // Adds all ranks' slots in rank order, from rank 0's, and applies the epilogue: the same bits on every rank and link.
  void reduce(Device& device, int entry, int rows, const Epilogue& epilogue);

  // out[row] = the ranks' parts side by side; parts[r] says where rank r's columns go (parts.size() == ranks()). A rank
  // whose slot is [rows, row_bytes / 4] contributes its first parts[rank].count columns.
  void all_gather(Device& device, int entry, int rows, std::span<const GatherPart> parts, View out);

  // Starts a step of so many rows: the next gate is the schedule's entry 0. next_rows is what the step after it is
  // expected to have. A step that was abandoned leaves the communicator broken.
  void begin_step(int rows, int next_rows);

  // Debugging: hashes every gate's result into gate_hashes(), which begin_step() clears.
  void hash_gates(bool on) { hashing_ = on; }
  std::span<const uint64_t> gate_hashes() const { return gate_hashes_; }
  // Adds to the last gate's hash what else must be the same on every rank after it.
  void hash_also(View rows);

  // Adds one that watches every gate from now on. It must outlive the communicator.
  void observe(GateObserver& observer) { observers_.push_back(&observer); }

  const GateStatistics& statistics() const { return statistics_; }

 private:
  // A gate in its order, with the rows of the last slot(). Error(kInternal), sticky, when it is not.
  const GateEntry& begin_gate(int entry, int rows);
  void finish_gate();

  // The clock is read once between two phases where somebody watches, else at a gate's ends alone. A world of one that
  // nobody watches has no time to tell.
  bool timed() const { return ranks() > 1 || !observers_.empty(); }
  void begin_phases() {
    if (timed()) phase_begin_ns_ = now_ns();
  }
  void end_phase(GatePhase phase, size_t bytes);
  void reduce_at_all(Device& device, const GateEntry& gate, int rows, const Epilogue& epilogue);
  void reduce_by_owners(Device& device, const GateEntry& gate, int rows, const Epilogue& epilogue);
  std::span<const size_t> incoming_from_all(size_t bytes);
  // A contribution as a matrix.
  static View matrix(const GateEntry& gate, std::span<const std::byte> bytes);
  [[noreturn]] void break_off(const std::string& message);

  std::unique_ptr<Exchange> exchange_;
  const GateSchedule& schedule_;
  int next_entry_;      // schedule_.size() between steps
  int slot_rows_ = -1;  // of the slot of next_entry_; -1: not asked for yet
  std::array<View, kMaxRanks> terms_;
  std::array<size_t, kMaxRanks> incoming_ = {};
  bool hashing_ = false;
  std::vector<uint64_t> gate_hashes_;
  GateStatistics statistics_;
  std::vector<GateObserver*> observers_;
  int64_t phase_begin_ns_ = 0;
};

}  // namespace coprime
