#include "tools/sim_dispatch.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/cube_groups.h"
#include "base/error.h"
#include "sim/decode_model.h"
#include "sim/reduce_model.h"
#include "tl/decode_memory.h"

namespace coprime {
namespace {

using attention::DecodeChoice;
using attention::DecodeLayout;
using attention::SpDegree;
using sim::Chip;
using sim::RunSpec;

attention::Mesh sip_of(const Chip& chip) {
  return {static_cast<int>(chip.cube_rows), static_cast<int>(chip.cube_columns)};
}

int64_t largest_context(const RunSpec& spec) { return std::max(spec.context, spec.largest_context); }

// With the keys that a PE sweeps while these ranks reduce, rounded up.
SpDegree degree_of(const Chip& chip, const RunSpec& spec, int cubes, int pes) {
  const auto reduce = attention::two_level_reduce(attention::pe_mesh(pes), spec.within,
                                                  attention::cube_groups(sip_of(chip), cubes).group, spec.across);
  const sim::Tick ticks = reduce_cost(chip, reduce, spec.rows, spec.d);
  const sim::Tick period = tile_period(chip, spec).ticks(spec.variant), keys = static_cast<sim::Tick>(spec.tile);
  return {cubes, pes, static_cast<int64_t>((ticks * keys + period - 1) / period)};
}

attention::DecodeCase request_of(const Chip& chip, const RunSpec& spec, int64_t threshold) {
  attention::DecodeCase request;
  request.largest_context = largest_context(spec);
  request.threshold = threshold;
  for (int cubes = spec.cubes;; cubes /= 2) {
    request.degrees.push_back(degree_of(chip, spec, cubes, spec.pes));
    if (cubes % 2 != 0) break;
  }
  request.in_cube = degree_of(chip, spec, 1, spec.pes);
  request.one_shot_keys = tl::one_shot_keys(spec.variant, spec.rows, spec.d, chip.pe.arena_bytes);
  request.tile = spec.tile;
  return request;
}

attention::KvLayout layout_of(const Chip& chip, const RunSpec& spec, const DecodeChoice& choice) {
  const auto sips = static_cast<int>(chip.sips);
  if (choice.layout == DecodeLayout::kShort)
    return attention::short_layout(sip_of(chip), sips, largest_context(spec), spec.kv_per_cube, choice.degree.pes);
  return attention::long_layout(sip_of(chip), sips, largest_context(spec), choice.degree.cubes, choice.degree.pes);
}

std::string keys_a_rank(int64_t context, int64_t ranks) {
  return fmt::format("{:g}", static_cast<double>(context) / static_cast<double>(ranks));
}

std::string describe(const DecodeChoice& choice) {
  switch (choice.layout) {
    case DecodeLayout::kOnePe:
      return "one PE for each KV head";
    case DecodeLayout::kShort:
      return fmt::format("short: whole KV heads on a CUBE, their keys over its {} PEs", choice.degree.pes);
    case DecodeLayout::kLong:
      break;
  }
  return fmt::format("long: the keys of a KV head over {} CUBEs of {} PEs", choice.degree.cubes, choice.degree.pes);
}

std::vector<std::string> reasons_of(const SimDispatch& dispatch) {
  const attention::DecodeCase& request = dispatch.request;
  const DecodeChoice& choice = dispatch.choice;
  const SpDegree& full = request.degrees.front();
  const int64_t context = request.largest_context;
  const bool fewer = context * attention::kThresholdRanks < request.threshold * full.ranks();
  std::vector<std::string> reasons = {
      describe(choice),
      fmt::format("{} tokens at most on {} x {} ranks are {} a rank, {} than {} (--threshold {}, on {} ranks)", context,
                  full.cubes, full.pes, keys_a_rank(context, full.ranks()), fewer ? "fewer" : "no fewer",
                  keys_a_rank(request.threshold, attention::kThresholdRanks), request.threshold,
                  attention::kThresholdRanks)};
  const SpDegree& shared = fewer ? request.in_cube : choice.layout == DecodeLayout::kOnePe ? full : choice.degree;
  if (shared.ranks() > 1) {
    const int64_t from = attention::sp_from(shared);
    reasons.push_back(fmt::format(
        "sequence parallelism is {}: over {} ranks it pays from {} tokens on (the reduction takes as long as {} keys)",
        choice.layout == DecodeLayout::kOnePe ? "off" : "on", shared.ranks(), from, shared.reduce_keys));
  }
  if (choice.layout == DecodeLayout::kLong && choice.degree.cubes < full.cubes) {
    reasons.push_back(fmt::format("{} CUBEs instead of {}: {} keys and a reduction worth {} against {} and {}",
                                  choice.degree.cubes, full.cubes, choice.rank_keys, choice.degree.reduce_keys,
                                  (context - 1) / full.ranks() + 1, full.reduce_keys));
  }
  reasons.push_back(choice.one_shot
                        ? fmt::format("one shot: all {} keys of a rank fit into the arena (up to {} do)",
                                      choice.rank_keys, request.one_shot_keys)
                        : fmt::format("tiles of {}: {} keys of a rank do not fit into the arena at once (up to {} do)",
                                      choice.tile, choice.rank_keys, request.one_shot_keys));
  return reasons;
}

RunSpec run_of(const RunSpec& spec, const DecodeChoice& choice) {
  RunSpec run = spec;
  run.kernel = choice.layout == DecodeLayout::kShort ? tl::Kernel::kDecodeShort : tl::Kernel::kDecode;
  run.cubes = choice.degree.cubes, run.pes = choice.degree.pes;
  run.tile = choice.tile;
  return run;
}

std::vector<DispatchAlternative> alternatives_to(const RunSpec& spec, const attention::DecodeCase& request,
                                                 const DecodeChoice& choice) {
  std::vector<DispatchAlternative> alternatives;
  const auto add = [&](DecodeLayout layout, const SpDegree& degree) {
    if (layout == choice.layout || degree.ranks() == 1) return;
    const DecodeChoice other = choice_of(request, layout, degree);
    alternatives.push_back({describe(other) + (other.one_shot ? ", one shot" : ""), run_of(spec, other)});
  };
  add(DecodeLayout::kShort, request.in_cube);
  add(DecodeLayout::kLong, request.degrees.front());
  if (choice.one_shot && choice.tile > request.tile) {
    RunSpec tiled = run_of(spec, choice);
    tiled.tile = request.tile;
    alternatives.push_back({fmt::format("the same in tiles of {}", request.tile), tiled});
  }
  return alternatives;
}

}  // namespace

SimDispatch dispatch_decode(const Chip& chip_of_all, const RunSpec& spec, int64_t threshold) {
  Chip chip = chip_of_all;
  if (spec.pes > chip.pes) fail(ErrorKind::kUsage, "{} PEs a CUBE: the chip has {}", spec.pes, chip.pes);
  chip.pes = spec.pes;
  SimDispatch dispatch{spec, request_of(chip, spec, threshold), {}, {}, {}, {}};
  const DecodeChoice& choice = dispatch.choice = choose_decode(dispatch.request);
  dispatch.spec = run_of(spec, choice);
  dispatch.reasons = reasons_of(dispatch);
  dispatch.alternatives = alternatives_to(spec, dispatch.request, choice);

  attention::DecodeCase alone = dispatch.request;
  alone.largest_context = spec.context;
  const DecodeChoice now = choose_decode(alone);
  if (now.layout != choice.layout || now.degree != choice.degree) {
    const auto moves = kv_moves(layout_of(chip, spec, now), layout_of(chip, spec, choice), spec.kv_heads, spec.context);
    const sim::ReshardCost cost = reshard_cost(chip, moves, spec.d);
    dispatch.change = {now, cost};
    dispatch.reasons.push_back(fmt::format(
        "for {} tokens alone it would be {}; to come from there is a reshard of {} bytes, at least {:.3f} us by {}",
        spec.context, describe(now), cost.bytes, sim::microseconds(cost.at_least), cost.by));
  }
  return dispatch;
}

}  // namespace coprime
