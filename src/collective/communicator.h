// One rank's end of the gates of a world, on whatever memory the rank computes in: it owns the order of the gates, and
// sums in rank order. HostCommunicator is that of ranks on CPUs; cuda/gpu_communicator.h that of GPU ranks.
//
// Refuses a gate out of the schedule's order ("gate order broke"), and every use after an error: errors stick, since
// nothing may be summed after a time-out, and the peers are told.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "collective/gate_observer.h"
#include "collective/gate_order.h"
#include "device/device.h"
#include "gate/exchange.h"
#include "gate/schedule.h"
#include "tensor/typed_view.h"

namespace coprime {

// What happens to a gate's sum while it is still in the cache: residual += sum, then normed = rms_norm(residual). The
// residual has the gate's type. F32: as Device::add_norm. BF16: as all_reduce/add_norm_quant.h, which also gives the
// norm in FP8.
struct Epilogue {
  TypedView residual;
  const float* norm_weight = nullptr;  // null: no norm
  float eps = 0;
  TypedView normed;          // of the residual's type; BF16: may be empty
  bool one_plus = false;     // BF16: gamma = 1 + weight
  uint8_t* codes = nullptr;  // BF16: e4m3 [rows, columns]; may be null
  float* scales = nullptr;   // by row, with codes
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
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // Where the caller writes its contribution to the gate `entry`: the outgoing slot itself, of the gate's type.
  virtual TypedView typed_slot(int entry, int rows) = 0;
  View slot(int entry, int rows) { return typed_slot(entry, rows).as_f32(); }

  // Adds all ranks' slots in rank order, from rank 0's, and applies the epilogue: the same bits on every rank and link.
  // Takes effect in the order of the rank's device.
  virtual void reduce(int entry, int rows, const Epilogue& epilogue) = 0;

  // out[row] = the ranks' parts side by side; parts[r] says where rank r's columns go (parts.size() == ranks()). A rank
  // whose slot is [rows, row_bytes / 4] contributes its first parts[rank].count columns. F32. The epilogue, if any,
  // takes `out` for the sum.
  virtual void all_gather(int entry, int rows, std::span<const GatherPart> parts, View out,
                          const Epilogue* epilogue = nullptr) = 0;

  // Starts a step of so many rows: the next gate is the schedule's entry 0. next_rows is what the step after it is
  // expected to have. A step that was abandoned leaves the communicator broken.
  virtual void begin_step(int rows, int next_rows) = 0;
};

// Ranks on CPUs: one exchange a gate, and the fold on the rank's device.
class HostCommunicator final : public Communicator {
 public:
  // The device must outlive the communicator.
  HostCommunicator(std::unique_ptr<Exchange> exchange, Device& device);

  int rank() const override { return exchange_->rank(); }
  int ranks() const override { return exchange_->ranks(); }
  TypedView typed_slot(int entry, int rows) override;
  void reduce(int entry, int rows, const Epilogue& epilogue) override;
  void all_gather(int entry, int rows, std::span<const GatherPart> parts, View out,
                  const Epilogue* epilogue = nullptr) override;
  void begin_step(int rows, int next_rows) override;

  size_t gates() const { return schedule_.size(); }  // of a step

  // Debugging: hashes every gate's result into gate_hashes(), which begin_step() clears.
  void hash_gates(bool on) { hashing_ = on; }
  std::span<const uint64_t> gate_hashes() const { return gate_hashes_; }

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
  void reduce_at_all(const GateEntry& gate, int rows, const Epilogue& epilogue);
  void reduce_by_owners(const GateEntry& gate, int rows, const Epilogue& epilogue);
  // The terms' sum, and what follows it, for the epilogue's rows from `first` on.
  void fold(const GateEntry& gate, std::span<const std::span<const std::byte>> terms, const Epilogue& epilogue,
            int64_t first);
  void fold_bf16(std::span<const std::span<const std::byte>> terms, const Epilogue& epilogue, int64_t first);
  void sum(const GateEntry& gate, std::span<const std::span<const std::byte>> terms, std::span<std::byte> out);
  void hash_also(const TypedView& rows);
  void hash_epilogue(const Epilogue& epilogue);
  std::span<const size_t> incoming_from_all(size_t bytes);
  // A contribution as a matrix.
  static View matrix(const GateEntry& gate, std::span<const std::byte> bytes);
  [[noreturn]] void break_off(const std::string& message);

  std::unique_ptr<Exchange> exchange_;
  Device& device_;
  const GateSchedule& schedule_;
  GateOrder order_;
  std::array<View, kMaxRanks> terms_;
  std::vector<float> row_;  // of a bf16 gate
  std::vector<uint16_t> bf16_row_;
  std::array<size_t, kMaxRanks> incoming_ = {};
  bool hashing_ = false;
  std::vector<uint64_t> gate_hashes_;
  GateStatistics statistics_;
  std::vector<GateObserver*> observers_;
  int64_t phase_begin_ns_ = 0;
};

}  // namespace coprime
