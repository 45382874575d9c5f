// A whole run, from what a person asks for to what it cost: places kernels on the chip, runs the machines, adds up.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/chip.h"
#include "sim/machine.h"
#include "tl/program.h"

namespace coprime::sim {

using tl::CounterInputs, tl::HeadOutput, tl::Inputs;

struct RunSpec : tl::LaunchSpec {
  std::shared_ptr<const Inputs> inputs;  // set: data mode
  bool forward = true;   // in closed form where that is exact: loops, messages (machine.h), all heads but one
  bool serial = false;   // nothing overlaps within a PE (Machine::set_serial)
  OpLog* log = nullptr;  // set: rows of all SIPs, one after another
  int layers = 1;        // of the same shape, one after the other: more than one is two that are simulated and compared
  Machine::Progress progress;  // Machine::run
};

// What a resource alone would take: the run cannot be faster.
struct Bound {
  std::string_view resource;  // hbm, gemm, math, issue, links
  Tick ticks = 0;
};

struct RunResult {
  Tick ticks = 0;
  std::array<Tick, kParts> path = {};             // what the time of the PE that ended last is made of
  std::vector<Bound> bounds;                      // the largest first
  int rounds = 0;                                 // of the reduction, or transfers of the ring
  int64_t sends = 0, sends_total = 0;             // of one KV head by the closed form; of all as counted
  int64_t steps_computed = 0, steps_skipped = 0;  // of a ring prefill: blocks that a CUBE meets over the chunks
  int sips = 0, launches = 1;       // launches: one after another, where the chip is too small for all heads at once
  MachineTotals totals;             // of one launch: all SIPs
  int64_t pes = 0;                  // that ran a kernel
  double energy_pj = 0;             // an estimate
  std::vector<HeadOutput> outputs;  // in data mode; by KV head, of the all-reduce by PE
  std::string layers_differ;        // where the second layer is not the first; empty: nowhere, or there was none

  uint64_t events() const;
};

// What `launch` says, whatever of it `spec` would have asked for. chip.pes: as many as the launch has.
RunResult run_launch(const Chip& chip, const RunSpec& spec, const tl::Launch& launch);

// Error(kUsage) for what cannot be placed.
RunResult run(const Chip& chip, const RunSpec& spec);

}  // namespace coprime::sim
