// The chip that is simulated: plain numbers. docs/simulator-model.md says what each does to time, by these names.
// Times are integer picoseconds, rates are bytes a nanosecond (GB/s, integers), so that no duration needs floating
// point.
#pragma once

#include <cstdint>

namespace coprime::sim {

using Tick = uint64_t;  // picoseconds
constexpr double microseconds(Tick ticks) { return static_cast<double>(ticks) / 1e6; }

// Cycles that the CPU of a PE spends to issue an operation.
struct IssueCycles {
  int64_t load, store, composite, ex_composite, dot, math, send, recv;
};

// The vector engine. An operation takes fill_cycles + ceil(elements * cost / lanes) cycles; cost is 1, exp_cost for
// exp.
struct MathUnit {
  int64_t lanes, fill_cycles, exp_cost;
  int64_t queue_depth;  // operations issued and not yet started
  bool blocking;        // the CPU waits for the end of each operation
};

// The matrix engine: tiles of tile_m x tile_k x tile_n, whatever part of them is real.
struct GemmUnit {
  int64_t tile_m, tile_k, tile_n;
  int64_t subtile_cycles;   // of one tile
  int64_t fill_cycles;      // before the first tile of a composite
  int64_t drain_cycles;     // from the last tile of a composite to its result, with its epilogue
  int64_t composite_depth;  // composites issued and not yet complete
};

// What moves data between the PE's own HBM region and its TCM.
struct DmaUnit {
  int64_t hbm_gb_s;  // of the PE's pseudo-channels together
  int64_t latency_ps;
  int64_t request_bytes, reads_in_flight;
  int64_t stages;  // buffers for sub-tiles that stream to the matrix engine
};

struct Pe {
  int64_t ps_per_cycle;
  IssueCycles issue;
  MathUnit math;
  GemmUnit gemm;
  DmaUnit dma;
  int64_t tcm_bytes;    // arena and stream buffers
  int64_t arena_bytes;  // of the kernel's tensors
};

struct Link {
  int64_t gb_s, hop_ps;
};

// Queues between PEs, and the links below them.
struct Ipcq {
  int64_t slot_bytes, slots;  // of each direction: what may be under way and unread
  int64_t packet_bytes;       // what links share by
  Link pe, cube, sip;         // between PEs of a CUBE, between CUBEs of a SIP, between SIPs (UCIe)
};

// Picojoules. An estimate beside the simulation: no time depends on it.
struct Energy {
  double hbm_byte, pe_link_byte, cube_link_byte, sip_link_byte;  // a byte, on links a byte and hop
  double mac, math_lane, issue;
};

struct Chip {
  int64_t sips;
  int64_t cube_rows, cube_columns;  // of the mesh of a SIP
  int64_t pes;                      // of a CUBE: 1, 2, 4 or 8, as a mesh of 1x1, 1x2, 2x2 or 2x4
  Pe pe;
  Ipcq ipcq;
  Energy energy;
  bool contention;  // false: every message has its links for itself
};

// The chip of ADR-0060: its sizes, and assumed rates (chips/ahbm-4sip.yaml says where each comes from).
Chip ahbm_chip();

}  // namespace coprime::sim
