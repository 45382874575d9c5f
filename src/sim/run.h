// A whole run, from what a person asks for to what it cost: places kernels on the chip, runs the machines, adds up.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attention/reduce_schedule.h"
#include "sim/chip.h"
#include "sim/inputs.h"
#include "sim/machine.h"
#include "tl/kernels/decode.h"

namespace coprime::sim {

struct RunSpec {
  tl::DecodeVariant variant = tl::DecodeVariant::kOpt3;
  int64_t context = 1 << 20;    // tokens that are valid at launch, the new one included
  int64_t largest_context = 0;  // that the cache has room for; 0: context
  int cubes = 8, pes = 8;       // of a group: C and P
  int64_t tile = 64;
  int kv_heads = 8;
  int64_t rows = 8, d = 128;                                            // query heads of a KV head; width of a head
  attention::ReduceTopology within = attention::ReduceTopology::kTree;  // of the PEs of a CUBE
  attention::ReduceTopology across = attention::ReduceTopology::kCentreMesh;  // of the CUBEs of a group
  int64_t request = 0;                                                        // rotates the placement of data
  bool scopes = true;
  std::shared_ptr<const Inputs> inputs;  // set: data mode
  bool forward = true;                   // loops and messages in closed form where that is exact (machine.h)
  OpLog* log = nullptr;                  // set: rows of all SIPs, one after another
};

// What a resource alone would take: the run cannot be faster.
struct Bound {
  std::string_view resource;  // hbm, gemm, math, issue, links
  Tick ticks = 0;
};

// The output of one KV head in data mode.
struct HeadOutput {
  std::vector<float> o;  // [rows, d]
  std::vector<float> l;  // [rows], of the root, before the division
  int stores = 0;        // to the output, by all ranks of the group
};

struct RunResult {
  Tick ticks = 0;
  std::array<Tick, kParts> path = {};  // what the time of the PE that ended last is made of
  std::vector<Bound> bounds;           // the largest first
  int rounds = 0;                      // of the reduction
  int64_t sends = 0, sends_total = 0;  // of one KV head, of all
  int sips = 0, launches = 1;          // launches: one after another, where the chip is too small for all heads at once
  MachineTotals totals;                // of one launch: all SIPs
  int64_t pes = 0;                     // that ran a kernel
  double energy_pj = 0;                // an estimate
  std::vector<HeadOutput> outputs;     // by KV head, in data mode

  uint64_t events() const;
};

// Error(kUsage) for what cannot be placed.
RunResult run(const Chip& chip, const RunSpec& spec);

}  // namespace coprime::sim
