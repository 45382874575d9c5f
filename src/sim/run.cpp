#include "sim/run.h"

#include <algorithm>
#include <numeric>

#include "attention/cube_groups.h"
#include "attention/kv_placement.h"
#include "base/error.h"
#include "sim/rank_memory.h"

namespace coprime::sim {
namespace {

using attention::CubeGroups;
using attention::KvPlacement;

struct Plan {
  CubeGroups groups;
  KvPlacement placement;
  attention::TwoLevelReduce reduce;
};

Plan make_plan(const Chip& chip, const RunSpec& spec) {
  if (spec.context < 1) fail(ErrorKind::kUsage, "a context of {} tokens: it needs at least 1", spec.context);
  if (spec.tile < 1) fail(ErrorKind::kUsage, "tiles of {} tokens: they need at least 1", spec.tile);
  const int64_t largest = std::max(spec.context, spec.largest_context);
  Plan plan;
  plan.groups =
      attention::cube_groups({static_cast<int>(chip.cube_rows), static_cast<int>(chip.cube_columns)}, spec.cubes);
  plan.placement = attention::kv_placement(largest, spec.cubes, spec.pes, 1, spec.request);
  plan.reduce = attention::two_level_reduce(attention::pe_mesh(spec.pes), spec.within, plan.groups.group, spec.across);
  return plan;
}

tl::ReduceLevel reduce_level(const attention::ReduceSchedule& schedule, int place, tl::Level level, auto number_of) {
  const attention::ReducePart part = schedule.part(place);
  tl::ReduceLevel result;
  for (const attention::ReduceMessage& message : part.receives)
    result.children.push_back({level, number_of(message.from)});
  result.root = !part.send;
  if (part.send) result.parent = {level, number_of(part.send->to)};
  return result;
}

std::vector<tl::Peer> peers_of(const tl::ReduceArgs& args) {
  std::vector<tl::Peer> peers;
  for (const tl::ReduceLevel* level : {&args.within, &args.across}) {
    if (level->root) continue;
    peers.push_back(level->parent);
    break;
  }
  return peers;
}

void merge(MachineTotals& into, const MachineTotals& from) {
  if (from.end.time > into.end.time) into.end = from.end, into.last_pe = from.last_pe;
  for (size_t kind = 0; kind < kEventKinds; ++kind) into.events[kind] += from.events[kind];
  into.pes.combine(from.pes, kAdd);
  into.busiest.combine(from.busiest, kLargest);
  into.time += from.time;
  into.busiest_link = std::max(into.busiest_link, from.busiest_link);
  for (size_t level = 0; level < into.levels.size(); ++level) {
    into.levels[level].messages += from.levels[level].messages;
    into.levels[level].sent += from.levels[level].sent;
    into.levels[level].received += from.levels[level].received;
    into.levels[level].byte_hops += from.levels[level].byte_hops;
  }
  into.arena_high_water = std::max(into.arena_high_water, from.arena_high_water);
  into.tcm_high_water = std::max(into.tcm_high_water, from.tcm_high_water);
}

// One SIP's groups, each a KV head, on a machine of their own: heads never cross SIPs.
void run_sip(const Chip& chip, const RunSpec& spec, const Plan& plan, int sip, int heads, RunResult& result) {
  const CubeGroups& groups = plan.groups;
  const bool data = spec.inputs != nullptr;
  const size_t ranks = static_cast<size_t>(heads * spec.cubes * spec.pes);
  std::vector<tl::DecodeArgs> args;
  std::vector<std::unique_ptr<RankMemory>> memories;
  args.reserve(ranks);
  Machine machine(chip, sip, 1, spec.log, spec.forward);
  for (int group = 0; group < heads; ++group) {
    const int head = attention::head_of(sip, group, groups.count());
    for (int place = 0; place < spec.cubes; ++place) {
      for (int pe = 0; pe < spec.pes; ++pe) {
        const int rank = plan.placement.rank_of(place, pe);
        tl::DecodeArgs& one = args.emplace_back();
        one.q = kQueries, one.k = kKeys, one.v = kValues, one.o = kOutput;
        one.variant = spec.variant;
        one.rows = spec.rows, one.d = spec.d, one.tile = spec.tile;
        one.tokens = plan.placement.held(rank, spec.context);
        one.scale = 1 / std::sqrt(static_cast<float>(spec.d));
        one.scopes = spec.scopes;
        one.reduce.within = reduce_level(plan.reduce.within, pe, tl::Level::kPe, [](int from) { return from; });
        one.reduce.across = reduce_level(plan.reduce.across, place, tl::Level::kCube,
                                         [&](int from) { return groups.cube(group, from); });
        if (data) {
          memories.push_back(
              std::make_unique<RankMemory>(*spec.inputs, head, plan.placement.begin(rank), spec.tile, spec.d));
        }
        machine.launch(
            {sip, groups.cube(group, place), pe}, "decode", data ? memories.back().get() : nullptr,
            [&](tl::Tl<Processor>& tl) { return tl::decode(tl, one); },
            spec.forward ? std::optional(peers_of(one.reduce)) : std::nullopt);
      }
    }
  }
  merge(result.totals, machine.run());
  result.pes += static_cast<int64_t>(ranks);
  if (!data) return;
  for (int group = 0; group < heads; ++group) {
    HeadOutput& output = result.outputs.emplace_back();
    for (int rank = 0; rank < spec.cubes * spec.pes; ++rank) {
      const RankMemory& memory = *memories[static_cast<size_t>(group * spec.cubes * spec.pes + rank)];
      output.stores += memory.stores();
      if (memory.stores() == 0) continue;
      output.o = memory.output();
      const Place place{sip, groups.cube(group, rank / spec.pes), rank % spec.pes};
      output.l = machine.processor(place).notes().front().values;
    }
  }
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

RunResult run(const Chip& chip_of_all, const RunSpec& spec) {
  Chip chip = chip_of_all;
  if (spec.pes > chip.pes) fail(ErrorKind::kUsage, "{} PEs a CUBE: the chip has {}", spec.pes, chip.pes);
  chip.pes = spec.pes;
  const Plan plan = make_plan(chip, spec);
  const int per_sip = plan.groups.count(), sips = static_cast<int>(chip.sips);

  RunResult result;
  const int at_once = std::min(spec.kv_heads, per_sip * sips);
  result.launches = (spec.kv_heads + at_once - 1) / at_once;
  result.rounds = plan.reduce.rounds();
  result.sends = plan.reduce.sends();
  for (int left = at_once; left > 0; left -= per_sip)
    run_sip(chip, spec, plan, result.sips++, std::min(left, per_sip), result);

  const MachineTotals& totals = result.totals;
  result.ticks = totals.end.time * static_cast<Tick>(result.launches);
  result.path = totals.end.by;
  for (const LevelTotals& level : totals.levels) result.sends_total += static_cast<int64_t>(level.messages);
  result.sends_total = result.sends_total / at_once * spec.kv_heads;
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
