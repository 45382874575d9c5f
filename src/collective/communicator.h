// One rank's end of the gates of a world: it owns the sequence number, runs one exchange a gate, and folds in rank order.
//
// Refuses a gate out of the schedule's order ("gate order broke"), and every use after an error: the error is sticky, since
// nothing may be summed after a time-out.
#pragma once

#include <memory>
#include <span>

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
  int64_t time_us = 0;   // from publish to the end of the fold
  uint64_t bytes = 0;    // sent by this rank to each peer
};

class Communicator {
 public:
  Communicator(std::unique_ptr<Exchange> exchange, GateSchedule schedule);

  int rank() const { return exchange_->rank(); }
  int ranks() const { return exchange_->ranks(); }

  // Where the caller writes its contribution to the gate `entry`, [rows, row_bytes / 4]: the outgoing slot itself.
  View slot(int entry, int rows);

  // Adds all ranks' slots in rank order, from rank 0's, and applies the epilogue: the same bits on every rank and link.
  void reduce(Device& device, int entry, int rows, const Epilogue& epilogue);

  // out[row] = the ranks' parts side by side; parts[r] says where rank r's columns go (parts.size() == ranks()). A rank
  // whose slot is [rows, row_bytes / 4] contributes its first parts[rank].count columns.
  void all_gather(Device& device, int entry, int rows, std::span<const GatherPart> parts, View out);

  // Starts a step: the next gate is the schedule's entry 0. A step that was abandoned leaves the communicator broken.
  void begin_step();

  // Debugging: hashes every gate's result into gate_hashes(), which begin_step() clears.
  void hash_gates(bool on) { hashing_ = on; }
  std::span<const uint64_t> gate_hashes() const { return gate_hashes_; }

  const GateStatistics& statistics() const { return statistics_; }

 private:
  std::unique_ptr<Exchange> exchange_;
  GateSchedule schedule_;
  int next_entry_ = 0;
  bool hashing_ = false;
  std::vector<uint64_t> gate_hashes_;
  GateStatistics statistics_;
};

}  // namespace coprime
