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

// The rows behind `middle`, against those from `begin` to there: the same, later, by operations of higher numbers.
std::string rows_differ(const OpLog& log, size_t begin, size_t middle, const LayerRecord& one,
                        const LayerRecord& other) {
  const size_t rows = middle - begin;
  if (log.size() - middle != rows) return fmt::format("{} operations, then {}", rows, log.size() - middle);
  const Tick later = other.start - one.start;
  const uint32_t more = other.first_op - one.first_op;
  for (size_t i = begin, j = middle; i < middle; ++i, ++j) {
    const bool same = log.start[i] + later == log.start[j] && log.end[i] + later == log.end[j] &&
                      log.op[i] + more == log.op[j] && log.bytes[i] == log.bytes[j] && log.macs[i] == log.macs[j] &&
                      log.pe[i] == log.pe[j] && log.line[i] == log.line[j] && log.kind[i] == log.kind[j] &&
                      (log.start[i] == one.start ||  // at once: it waited for nothing
                       (log.cause[i] == log.cause[j] &&
                        (log.cause_op[i] == 0 ? log.cause_op[j] == 0 : log.cause_op[i] + more == log.cause_op[j])));
    if (!same) return fmt::format("operation {} of PE {} is not the same again", log.op[i], log.pe[i]);
  }
  return "";
}

// A head is of one program alone.
void add(std::vector<HeadOutput>& outputs, const std::vector<HeadOutput>& more) {
  if (outputs.size() < more.size()) outputs.resize(more.size());
  for (size_t head = 0; head < more.size(); ++head)
    if (more[head].stores > 0) outputs[head] = more[head];
}

// Programs never speak with each other: each runs on a machine of its own. The first `parts` of it.
class ProgramRun {
 public:
  ProgramRun(const Chip& chip, const RunSpec& spec, const tl::Program& program, size_t parts)
      : spec_(spec),
        program_(program),
        parts_(parts),
        machine_(chip, program.first_sip, program.sips, spec.log, spec.forward) {
    machine_.set_serial(spec.serial);
  }

  MachineTotals layer() {
    std::vector<std::unique_ptr<tl::RankMemory>> memories(parts_);
    for (size_t i = 0; i < parts_; ++i) {
      const tl::Part& part = program_.parts[i];
      if (spec_.inputs) memories[i] = std::make_unique<tl::RankMemory>(*spec_.inputs, part.memory);
      machine_.launch(
          part.place, std::string(tl::name_of(spec_.kernel)), memories[i].get(),
          [&](tl::Tl<Processor>& tl) { return tl::start_kernel(tl, part.args); },
          spec_.forward ? std::optional(tl::peers_of(part.args)) : std::nullopt);
    }
    const MachineTotals totals = machine_.run(spec_.progress);
    tl::OutputCollector outputs;
    if (spec_.inputs) {
      for (size_t i = 0; i < parts_; ++i)
        outputs.add(*memories[i], machine_.processor(program_.parts[i].place).notes());
    }
    outputs_ = outputs.take();
    return totals;
  }

  // Once more, after layer(): where that is not the same. The log keeps the first alone.
  std::string next_layer_differs(size_t first_row) {
    const std::vector<HeadOutput> outputs = outputs_;
    const size_t middle = spec_.log ? spec_.log->size() : 0;
    const LayerRecord one = machine_.next_layer();
    layer();
    const LayerRecord other = machine_.next_layer();
    std::string differs = difference(one, other);
    if (differs.empty() && spec_.log) differs = rows_differ(*spec_.log, first_row, middle, one, other);
    if (differs.empty() && outputs != outputs_) differs = "the outputs are not the same";
    if (spec_.log) spec_.log->resize(middle);
    outputs_ = outputs;
    return differs;
  }

  const std::vector<HeadOutput>& outputs() const { return outputs_; }

 private:
  const RunSpec& spec_;
  const tl::Program& program_;
  const size_t parts_;
  Machine machine_;
  std::vector<HeadOutput> outputs_;
};

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
  const auto run_program = [&](const tl::Program& program, size_t parts) {
    ProgramRun one(chip, spec, program, parts);
    const size_t first_row = spec.log ? spec.log->size() : 0;
    merge(result.totals, one.layer());
    if (spec.layers > 1 && result.layers_differ.empty()) result.layers_differ = one.next_layer_differs(first_row);
    add(result.outputs, one.outputs());
  };
  const bool one_for_all = spec.forward && !spec.inputs && !spec.log && launch.parts_of_head != 0;
  for (const tl::Program& program : launch.programs) {
    result.pes += static_cast<int64_t>(program.parts.size());
    result.sips += program.sips;
    if (!one_for_all) run_program(program, program.parts.size());
  }
  if (one_for_all) {
    run_program(launch.programs[0], launch.parts_of_head);
    repeat(result.totals, static_cast<uint64_t>(launch.heads));
  }
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
