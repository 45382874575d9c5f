// What all parts of a running machine share.
#pragma once

#include <array>

#include "sim/chip.h"
#include "sim/event_queue.h"
#include "sim/moment.h"
#include "sim/op_log.h"
#include "tl/command.h"

namespace coprime::sim {

// transfer(bytes, gb_s) of docs/simulator-model.md.
constexpr Tick transfer_ticks(int64_t bytes, int64_t gb_s) {
  return static_cast<Tick>((bytes * 1000 + gb_s - 1) / gb_s);
}

struct Context {
  Context(const Chip& the_chip, OpLog* the_log);

  Tick cycles(int64_t count) const { return static_cast<Tick>(count * chip.pe.ps_per_cycle); }
  Tick math_ticks(tl::Op op, int64_t elements) const {
    const int64_t lanes = elements * (op == tl::Op::kExp ? chip.pe.math.exp_cost : 1);
    return cycles(chip.pe.math.fill_cycles + (lanes + chip.pe.math.lanes - 1) / chip.pe.math.lanes);
  }
  uint32_t next_op() { return ++ops; }
  void append(const OpRow& row) {
    if (log) log->append(row);
  }

  const Chip chip;
  std::array<Tick, tl::kOps> issue_ticks = {};
  EventQueue events;
  Event event;   // the present one
  Tick now = 0;  // its time
  OpLog* log;    // null: none
  uint32_t ops = 0;
  bool with_data = false;
  bool serial = false;   // the CPU waits for the end of each operation
  bool forward = false;  // loops may be accounted for at once
};

}  // namespace coprime::sim
