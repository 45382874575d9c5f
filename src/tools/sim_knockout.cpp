#include "tools/sim_knockout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace coprime {
namespace {

using sim::Chip;

constexpr int64_t kUnbounded = 1'000'000;  // GB/s

struct Change {
  std::string_view resource, ideal;
  void (*apply)(Chip& chip);
};

constexpr std::array<Change, 9> kChanges = {{
    {"none", "the chip as it is", [](Chip&) {}},
    {"HBM rate", "any number of bytes at once", [](Chip& chip) { chip.pe.dma.hbm_gb_s = kUnbounded; }},
    {"HBM latency", "none", [](Chip& chip) { chip.pe.dma.latency_ps = 0; }},
    {"DMA depth", "4096 requests in flight, 4096 stages",
     [](Chip& chip) { chip.pe.dma.reads_in_flight = chip.pe.dma.stages = 4096; }},
    {"GEMM", "a cycle a sub-tile, no fill, no drain",
     [](Chip& chip) {
       chip.pe.gemm.subtile_cycles = 1;
       chip.pe.gemm.fill_cycles = chip.pe.gemm.drain_cycles = 0;
     }},
    {"MATH", "65536 lanes, no fill",
     [](Chip& chip) {
       chip.pe.math.lanes = 65536;
       chip.pe.math.fill_cycles = 0;
     }},
    {"issue", "no cycles", [](Chip& chip) { chip.pe.issue = {}; }},
    {"queues", "MATH does not block, 4096 operations deep",
     [](Chip& chip) {
       chip.pe.math.blocking = false;
       chip.pe.math.queue_depth = chip.pe.gemm.composite_depth = 4096;
     }},
    {"links", "no transfer, no hop, no sharing",
     [](Chip& chip) {
       for (sim::Link* link : {&chip.ipcq.pe, &chip.ipcq.cube, &chip.ipcq.sip}) *link = {kUnbounded, 0};
       chip.contention = false;
     }},
}};

}  // namespace

std::vector<Knockout> run_knockouts(const Chip& chip, const sim::RunSpec& asked,
                                    const std::function<void(size_t run, size_t runs)>& progress) {
  std::vector<Knockout> knockouts;
  sim::RunSpec spec = asked;
  if (progress) spec.progress = [&](sim::Tick, uint64_t) { progress(knockouts.size(), kChanges.size()); };
  for (const Change& change : kChanges) {
    Chip changed = chip;
    change.apply(changed);
    knockouts.push_back({change.resource, change.ideal, sim::run(changed, spec).ticks});
  }
  return knockouts;
}

std::string knockout_table(const std::vector<Knockout>& knockouts) {
  std::string table = fmt::format("{:<12} {:>12} {:>9}  {}\n", "ideal", "us", "gain", "");
  const auto base = static_cast<double>(knockouts.front().ticks);
  for (const Knockout& knockout : knockouts)
    table += fmt::format("{:<12} {:>12.3f} {:>8.1f}%  {}\n", knockout.resource, sim::microseconds(knockout.ticks),
                         100 * (1 - static_cast<double>(knockout.ticks) / base), knockout.ideal);
  return table;
}

}  // namespace coprime
