#include "sim/chip.h"

namespace coprime::sim {

Chip ahbm_chip() {
  Chip chip{};
  chip.sips = 4;
  chip.cube_rows = chip.cube_columns = 4;
  chip.pes = 8;
  chip.contention = true;

  Pe& pe = chip.pe;
  pe.ps_per_cycle = 1000;
  pe.issue = {
      .load = 20, .store = 20, .composite = 40, .ex_composite = 60, .dot = 20, .math = 8, .send = 16, .recv = 16};
  pe.math = {.lanes = 64, .fill_cycles = 4, .exp_cost = 4, .queue_depth = 16, .blocking = false};
  pe.gemm = {.tile_m = 32,
             .tile_k = 64,
             .tile_n = 32,
             .subtile_cycles = 16,
             .fill_cycles = 16,
             .drain_cycles = 8,
             .composite_depth = 8};
  pe.dma = {.hbm_gb_s = 256, .latency_ps = 100'000, .request_bytes = 1024, .reads_in_flight = 32, .stages = 16};
  pe.tcm_bytes = 2 << 20;
  pe.arena_bytes = 1 << 20;

  chip.ipcq = {.slot_bytes = 4096,
               .slots = 4,
               .packet_bytes = 512,
               .pe = {.gb_s = 64, .hop_ps = 4'000},
               .cube = {.gb_s = 128, .hop_ps = 20'000},
               .sip = {.gb_s = 64, .hop_ps = 80'000}};
  chip.energy = {.hbm_byte = 31,
                 .pe_link_byte = 1,
                 .cube_link_byte = 6,
                 .sip_link_byte = 16,
                 .mac = 0.5,
                 .math_lane = 1,
                 .issue = 20};
  return chip;
}

}  // namespace coprime::sim
