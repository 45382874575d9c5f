// Random chips and runs for tests that compare two ways to the same ticks.
#pragma once

#include <bit>
#include <random>

#include "attention/cube_groups.h"
#include "attention/reduce_schedule.h"
#include "attention/ring_order.h"
#include "sim/run.h"

namespace coprime::sim::testing {

struct Case {
  Chip chip;
  RunSpec spec;
};

// Small numbers with many ties and ragged ends, so that every rule is the one that binds somewhere.
class RandomCases {
 public:
  explicit RandomCases(uint64_t seed) : random_(seed) {}

  Case next() {
    Case made{ahbm_chip(), {}};
    Chip& chip = made.chip;
    RunSpec& spec = made.spec;
    chip.contention = false;
    chip.sips = 1;
    chip.cube_rows = chip.cube_columns = 4;
    chip.pes = 1 << number(0, 3);
    chip.pe.ps_per_cycle = number(1, 3) * 500;
    chip.pe.issue = {number(1, 20), number(1, 20), number(1, 40), number(1, 40),
                     number(1, 20), number(1, 12), number(1, 20), number(1, 20)};
    chip.pe.math = {number(1, 64), number(0, 6), number(1, 5), number(1, 20), coin()};
    chip.pe.gemm = {number(1, 16), number(4, 32), number(4, 32), number(1, 20),
                    number(0, 20), number(0, 20), number(1, 6)};
    chip.pe.dma.hbm_gb_s = number(1, 300);
    chip.pe.dma.latency_ps = number(0, 200'000);
    chip.pe.dma.request_bytes = number(16, std::min<int64_t>(2 * chip.pe.gemm.tile_k * chip.pe.gemm.tile_n, 512));
    chip.pe.dma.reads_in_flight = number(1, 8);
    chip.pe.dma.stages = number(1, 8);
    chip.ipcq.slot_bytes = number(8, 600);
    chip.ipcq.slots = number(1, 4);
    chip.ipcq.packet_bytes = number(4, chip.ipcq.slot_bytes);
    for (Link* link : {&chip.ipcq.pe, &chip.ipcq.cube}) *link = {number(1, 200), number(0, 50'000)};

    spec.variant = static_cast<tl::DecodeVariant>(number(0, 3));
    spec.pes = static_cast<int>(chip.pes);
    spec.cubes = 1 << number(0, 4);
    spec.kv_heads = 1;
    spec.rows = number(1, 20);
    spec.d = number(1, 32);
    spec.tile = number(1, 40);
    spec.largest_context = number(1, spec.pes * spec.cubes * spec.tile * number(1, 4));
    spec.context = coin() ? spec.largest_context : number(1, spec.largest_context);
    spec.within = topology(attention::pe_mesh(spec.pes));
    spec.across = topology(attention::cube_groups({4, 4}, spec.cubes).group);
    return made;
  }

  // Any kernel but head packing; those of prefill with few ranks, since their work grows with the square.
  Case next_of_any_kernel() {
    Case made = next();
    RunSpec& spec = made.spec;
    spec.kernel = tl::kKernels[static_cast<size_t>(number(0, static_cast<int64_t>(tl::kKernels.size()) - 2))];
    spec.kv_heads = static_cast<int>(number(1, 3));
    spec.kv_per_cube = 1 << number(0, 2);
    if (spec.kernel == tl::Kernel::kAllReduce) {
      made.chip.sips = number(1, 4);
      made.chip.ipcq.sip = {number(1, 200), number(0, 50'000)};
    }
    const bool ring = spec.kernel == tl::Kernel::kPrefill || spec.kernel == tl::Kernel::kKvFanOut;
    if (!ring && spec.kernel != tl::Kernel::kPrefillShort) return made;
    spec.pes = 1 << number(0, std::countr_zero(static_cast<unsigned>(made.chip.pes)));
    spec.cubes = 1 << number(0, 2);
    spec.rows = spec.cubes > 1 ? spec.cubes : number(1, 4);
    const int64_t ranks = spec.pes * (ring ? spec.cubes : 1);
    spec.context = number(1, (ranks == 1 ? 24 : 3 * ranks) * spec.tile);
    spec.largest_context = spec.context + number(0, spec.tile);
    spec.query_begin = coin() ? 0 : number(0, spec.context - 1);
    spec.query_rows = spec.rows * number(1, 12);
    return made;
  }

  // The same with few queries, and few ranks where each speaks with all: for an oracle that takes its time.
  Case next_short_one_of_any_kernel() {
    Case made = next_of_any_kernel();
    RunSpec& spec = made.spec;
    if (spec.kernel == tl::Kernel::kFanOut) spec.pes = std::min(spec.pes, std::max(1, 16 / spec.cubes));
    spec.query_end = std::min(spec.context, spec.query_begin + number(1, 12 * spec.query_rows));
    return made;
  }

 private:
  int64_t number(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random_() % static_cast<uint64_t>(most - least + 1));
  }
  bool coin() { return random_() % 2 == 0; }
  attention::ReduceTopology topology(attention::Mesh mesh) {
    const auto topology = attention::kReduceTopologies[static_cast<size_t>(number(0, 4))];
    using attention::ReduceTopology;
    return topology == ReduceTopology::kRing && !attention::has_ring(mesh) ? ReduceTopology::kTree : topology;
  }

  std::mt19937_64 random_;
};

}  // namespace coprime::sim::testing
