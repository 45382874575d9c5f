#include "sim/run.h"

#include <algorithm>
#include <numeric>

#include "attention/cube_groups.h"
#include "base/error.h"

namespace coprime::sim {
namespace {

void merge(MachineTotals& into, const MachineTotals& from) {
  if (from.end.time > into.end.time) into.end = from.end, into.last_pe = from.last_pe;
  for (size_t kind = 0; kind < kEventKinds; ++kind) into.events[kind] += from.events[kind];
  into.pes.combine(from.pes, kAdd);
  into.busiest.combine(from.busiest, kLargest);
  into.time += from.time;
  into.busiest_link = std::max(into.busiest_link, from.busiest_link);
  into.packets.served += from.packets.served, into.packets.by_turns += from.packets.by_turns;
  for (size_t level = 0; level < into.levels.size(); ++level) {
    into.levels[level].messages += from.levels[level].messages;
    into.levels[level].sent += from.levels[level].sent;
    into.levels[level].received += from.levels[level].received;
    into.levels[level].byte_hops += from.levels[level].byte_hops;
  }
  into.arena_high_water = std::max(into.arena_high_water, from.arena_high_water);
  into.tcm_high_water = std::max(into.tcm_high_water, from.tcm_high_water);
}

// The same once more, so many times in all, elsewhere on the chip and with nothing shared.
void repeat(MachineTotals& totals, uint64_t times) {
  const Tick forwarded = totals.pes.forwarded + totals.time * (times - 1);
  totals.pes.combine(totals.pes, [times](uint64_t a, uint64_t) { return a * times; });
  totals.pes.forwarded = forwarded;
  totals.time *= times;
  for (LevelTotals& level : totals.levels) {
    level.messages *= times, level.sent *= times, level.received *= times, level.byte_hops *= times;
  }
}

// Programs never speak with each other: each runs on a machine of its own. The first `parts` of it.
MachineTotals run_program(const Chip& chip, const RunSpec& spec, const tl::Program& program, size_t parts,
                          tl::OutputCollector& outputs) {
  std::vector<std::unique_ptr<tl::RankMemory>> memories(parts);
  Machine machine(chip, program.first_sip, program.sips, spec.log, spec.forward);
  machine.set_serial(spec.serial);
  for (size_t i = 0; i < parts; ++i) {
    const tl::Part& part = program.parts[i];
    if (spec.inputs) memories[i] = std::make_unique<tl::RankMemory>(*spec.inputs, part.memory);
    machine.launch(
        part.place, std::string(tl::name_of(spec.kernel)), memories[i].get(),
        [&](tl::Tl<Processor>& tl) { return tl::start_kernel(tl, part.args); },
        spec.forward ? std::optional(tl::peers_of(part.args)) : std::nullopt);
  }
  const MachineTotals totals = machine.run();
  if (spec.inputs) {
    for (size_t i = 0; i < parts; ++i) outputs.add(*memories[i], machine.processor(program.parts[i].place).notes());
  }
  return totals;
}

double energy(const Chip& chip, const MachineTotals& totals) {
  const Energy& energy = chip.energy;
  const auto number = [](uint64_t count) { return static_cast<double>(count); };
  const uint64_t issued = std::accumulate(totals.pes.issued.begin(), totals.pes.issued.end(), uint64_t{0});
  return energy.hbm_byte * number(totals.pes.hbm_read + totals.pes.hbm_written) +
         energy.pe_link_byte * number(totals.levels[0].byte_hops) +
         energy.cube_link_byte * number(totals.levels[1].byte_hops) +
         energy.sip_link_byte * number(totals.levels[2].byte_hops) + energy.mac * number(totals.pes.macs) +
         energy.math_lane * number(totals.pes.math_lanes) + energy.issue * number(issued);
}

}  // namespace

uint64_t RunResult::events() const { return std::accumulate(totals.events.begin(), totals.events.end(), uint64_t{0}); }

namespace {

tl::Places places_of(const Chip& chip) {
  return {static_cast<int>(chip.sips),
          {static_cast<int>(chip.cube_rows), static_cast<int>(chip.cube_columns)},
          attention::pe_mesh(static_cast<int>(chip.pes))};
}

}  // namespace

RunResult run(const Chip& chip_of_all, const RunSpec& spec) {
  Chip chip = chip_of_all;
  if (spec.pes > chip.pes) fail(ErrorKind::kUsage, "{} PEs a CUBE: the chip has {}", spec.pes, chip.pes);
  chip.pes = spec.pes;
  return run_launch(chip, spec, tl::make_launch(places_of(chip), spec));
}

RunResult run_launch(const Chip& chip, const RunSpec& spec, const tl::Launch& launch) {
  RunResult result;
  result.launches = launch.launches;
  result.rounds = launch.rounds;
  result.sends = launch.sends;
  result.steps_computed = launch.steps_computed, result.steps_skipped = launch.steps_skipped;
  tl::OutputCollector outputs;
  const bool one_for_all = spec.forward && !spec.inputs && !spec.log && launch.parts_of_head != 0;
  for (const tl::Program& program : launch.programs) {
    result.pes += static_cast<int64_t>(program.parts.size());
    result.sips += program.sips;
    if (!one_for_all) merge(result.totals, run_program(chip, spec, program, program.parts.size(), outputs));
  }
  if (one_for_all) {
    merge(result.totals, run_program(chip, spec, launch.programs[0], launch.parts_of_head, outputs));
    repeat(result.totals, static_cast<uint64_t>(launch.heads));
  }
  result.outputs = outputs.take();

  const MachineTotals& totals = result.totals;
  result.ticks = totals.end.time * static_cast<Tick>(result.launches);
  result.path = totals.end.by;
  for (const LevelTotals& level : totals.levels) result.sends_total += static_cast<int64_t>(level.messages);
  result.sends_total = result.sends_total * spec.kv_heads / launch.heads;
  result.bounds = {{"hbm", totals.busiest.dma},
                   {"gemm", totals.busiest.gemm},
                   {"math", totals.busiest.math},
                   {"issue", totals.busiest.issue},
                   {"links", totals.busiest_link}};
  std::ranges::stable_sort(result.bounds, [](const Bound& a, const Bound& b) { return a.ticks > b.ticks; });
  result.energy_pj = energy(chip, totals) * result.launches;
  return result;
}

}  // namespace coprime::sim
