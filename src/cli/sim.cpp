// coprime sim run: a kernel on the simulated chip, as tables or as one JSON object.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/interruption.h"
#include "cli/commands.h"
#include "cli/outputs.h"
#include "cli/sim_progress.h"
#include "cli/sim_spec.h"
#include "sim/chip_file.h"
#include "sim/op_log_file.h"
#include "sim/op_log_trace.h"
#include "sim/run.h"
#include "tools/sim_dispatch.h"
#include "tools/sim_sweep.h"

namespace coprime {
namespace {

using sim::RunResult;

double percent(sim::Tick part, sim::Tick whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

constexpr std::string_view kLevelNames[] = {"PEs of a CUBE", "CUBEs of a SIP", "SIPs"};

std::string text_of(const RunResult& result, const std::string& title, int users) {
  const sim::MachineTotals& totals = result.totals;
  std::string text = title + "\n";
  const auto line = [&](std::string_view name, const std::string& value) {
    text += fmt::format("{:<16}{}\n", name, value);
  };
  const sim::Bound& bound = result.bounds.front();
  line("latency",
       fmt::format("{:.3f} us on {} PEs of {} SIPs{}", sim::microseconds(result.ticks), result.pes, result.sips,
                   result.launches > 1 ? fmt::format(", {} launches one after another", result.launches) : ""));
  if (result.launches > 1) {
    line("one launch", fmt::format("{:.3f} us; what follows is of one, but for sends in all and energy",
                                   sim::microseconds(totals.end.time)));
  }
  line("bound", fmt::format("{:.3f} us by {}: {:.1f} % of the latency", sim::microseconds(bound.ticks), bound.resource,
                            percent(bound.ticks, totals.end.time)));
  std::string path;
  for (size_t part = 0; part < sim::kParts; ++part) {
    if (result.path[part] == 0) continue;
    path += fmt::format("{}{} {:.1f} %", path.empty() ? "" : ", ", sim::kPartNames[part],
                        percent(result.path[part], totals.end.time));
  }
  line("critical path", path);
  std::string busy;
  for (const sim::Bound& one : result.bounds) {
    busy += fmt::format("{}{} {:.1f} %", busy.empty() ? "" : ", ", one.resource, percent(one.ticks, totals.end.time));
  }
  line("busiest engine", busy);
  line("reduction", fmt::format("{} rounds, {} sends for a KV head{}, {} in all", result.rounds, result.sends,
                                users > 1 ? fmt::format(" of {} users", users) : "", result.sends_total));
  line("HBM", fmt::format("{} bytes read in {} sub-tiles, {} written", totals.pes.hbm_read, totals.pes.fetches,
                          totals.pes.hbm_written));
  for (size_t level = 0; level < totals.levels.size(); ++level) {
    const sim::LevelTotals& one = totals.levels[level];
    if (one.messages > 0)
      line(kLevelNames[level],
           fmt::format("{} messages, {} bytes, {} byte-hops", one.messages, one.sent, one.byte_hops));
  }
  line("GEMM", fmt::format("{} MACs in {} tiles", totals.pes.macs, totals.pes.subtiles));
  line("memory",
       fmt::format("{} bytes of the arena, {} of TCM at most", totals.arena_high_water, totals.tcm_high_water));
  line("energy", fmt::format("{:.3f} mJ (an estimate)", result.energy_pj / 1e9));
  std::string events = fmt::format("{}; {:.1f} % of the PEs' time in closed form", result.events(),
                                   percent(totals.pes.forwarded, totals.time));
  if (totals.packets.served > 0) {
    events += fmt::format(", {:.1f} % of {} packets on shared links",
                          percent(totals.packets.by_turns, totals.packets.served), totals.packets.served);
  }
  line("events", events);
  return text;
}

nlohmann::ordered_json json_of(const RunResult& result, const sim::Chip& chip, const nlohmann::ordered_json& run) {
  const sim::MachineTotals& totals = result.totals;
  nlohmann::ordered_json json;
  json["run"] = run;
  json["ticks"] = result.ticks;
  json["bound"] = {{"resource", result.bounds.front().resource}, {"ticks", result.bounds.front().ticks}};
  for (const sim::Bound& bound : result.bounds) {
    json["bounds"][std::string(bound.resource)] = bound.ticks;
    json["utilisation"][std::string(bound.resource)] = percent(bound.ticks, totals.end.time) / 100;
  }
  for (size_t part = 0; part < sim::kParts; ++part)
    json["critical_path"][std::string(sim::kPartNames[part])] = result.path[part];
  json["rounds"] = result.rounds;
  json["sends"] = result.sends;
  json["sends_total"] = result.sends_total;
  json["steps_computed"] = result.steps_computed;
  json["steps_skipped"] = result.steps_skipped;
  json["sips"] = result.sips;
  json["pes"] = result.pes;
  json["launches"] = result.launches;
  json["launch_ticks"] = totals.end.time;  // bounds, critical path, bytes and counts are those of one launch
  constexpr std::string_view kLevels[] = {"pe", "cube", "sip"};
  nlohmann::ordered_json& bytes = json["bytes"];
  bytes = {{"hbm_read", totals.pes.hbm_read}, {"hbm_written", totals.pes.hbm_written}};
  for (size_t level = 0; level < totals.levels.size(); ++level) {
    bytes[std::string(kLevels[level])] = {{"messages", totals.levels[level].messages},
                                          {"bytes", totals.levels[level].sent},
                                          {"byte_hops", totals.levels[level].byte_hops}};
  }
  json["macs"] = totals.pes.macs;
  json["tiles"] = totals.pes.subtiles;
  json["fetches"] = totals.pes.fetches;
  for (int op = 0; op < tl::kOps; ++op) {
    const uint64_t count = totals.pes.issued[static_cast<size_t>(op)];
    if (count > 0) json["issues"][std::string(tl::name_of(static_cast<tl::Op>(op)))] = count;
  }
  json["high_water"] = {{"arena", totals.arena_high_water}, {"tcm", totals.tcm_high_water}};
  json["energy_pj"] = result.energy_pj;
  json["events"] = result.events();
  json["forwarded"] = percent(totals.pes.forwarded, totals.time) / 100;
  json["packets"] = {{"served", totals.packets.served}, {"by_turns", totals.packets.by_turns}};
  for (size_t kind = 0; kind < sim::kEventKinds; ++kind) {
    if (totals.events[kind] > 0) json["events_by_kind"][std::string(sim::kEventKindNames[kind])] = totals.events[kind];
  }
  for (const std::string& key : sim::chip_keys()) json["chip"][key] = sim::chip_value(chip, key);
  json["chip_hash"] = fmt::format("{:016x}", sim::chip_hash(chip));
  return json;
}

nlohmann::ordered_json json_of(const SimDispatch& dispatch) {
  const attention::DecodeCase& request = dispatch.request;
  const attention::DecodeChoice& choice = dispatch.choice;
  nlohmann::ordered_json json = {{"layout", name_of(choice.layout)},
                                 {"kernel", name_of(dispatch.spec.kernel)},
                                 {"cubes", choice.degree.cubes},
                                 {"pes", choice.degree.pes},
                                 {"rank_keys", choice.rank_keys},
                                 {"one_shot", choice.one_shot},
                                 {"one_shot_keys", request.one_shot_keys},
                                 {"tile", choice.tile},
                                 {"largest_context", request.largest_context},
                                 {"threshold", request.threshold},
                                 {"threshold_ranks", attention::kThresholdRanks},
                                 {"ranks", request.degrees.front().ranks()},
                                 {"reduce_keys", choice.degree.reduce_keys},
                                 {"reasons", dispatch.reasons},
                                 {"reshard", nullptr}};
  if (dispatch.change) {
    const sim::ReshardCost& cost = dispatch.change->reshard;
    json["reshard"] = {
        {"from", name_of(dispatch.change->now.layout)},
        {"bytes", cost.bytes},
        {"byte_hops", {{"pe", cost.byte_hops[0]}, {"cube", cost.byte_hops[1]}, {"sip", cost.byte_hops[2]}}},
        {"ticks_at_least", cost.at_least},
        {"by", cost.by}};
  }
  return json;
}

// What the other ways take; empty: one cannot run.
std::vector<std::optional<sim::Tick>> ticks_of(const sim::Chip& chip, const SimDispatch& dispatch) {
  std::vector<std::optional<sim::Tick>> ticks;
  for (const DispatchAlternative& other : dispatch.alternatives) {
    try {
      ticks.emplace_back(sim::run(chip, other.spec).ticks);
    } catch (const Error&) {
      ticks.emplace_back();
    }
  }
  return ticks;
}

// With --auto: what the dispatcher makes of it.
std::optional<SimDispatch> dispatch_of(const SimRunSettings& settings, const sim::Chip& chip,
                                       const sim::RunSpec& spec) {
  if (!settings.automatic) {
    if (settings.given.contains("threshold"))
      fail(ErrorKind::kUsage, "--threshold is of --auto: give both, or leave it out");
    check_given(settings, {spec.kernel});
    return std::nullopt;
  }
  if (spec.kernel != tl::Kernel::kDecode)
    fail(ErrorKind::kUsage, "--auto chooses a decode: coprime sim run decode --auto; {} has no choice",
         settings.kernel);
  check_given(settings, {spec.kernel}, {"threshold", "kv-per-cube"});
  return dispatch_decode(chip, spec, sim_count("threshold", settings.threshold));
}

}  // namespace

void run_sim_run(const SimRunSettings& settings) {
  std::vector<std::filesystem::path> inputs;
  if (!settings.chip.empty()) inputs.push_back(settings.chip);
  if (!settings.trace.empty()) {
    check_output_flag("--trace", settings.trace, inputs);
    check_replaces("--trace", settings.trace, "trace of coprime sim run", sim::is_op_log_trace);
  }
  if (!settings.oplog.empty()) {
    check_output_flag("--oplog", settings.oplog, inputs);
    check_replaces("--oplog", settings.oplog, "op_log", sim::is_op_log);
  }
  if (!settings.trace.empty() &&
      std::filesystem::weakly_canonical(settings.trace) == std::filesystem::weakly_canonical(settings.oplog)) {
    fail(ErrorKind::kUsage, "--trace and --oplog are both {}: give each a file of its own", settings.trace);
  }
  sim::Chip chip = sim_chip(settings);
  sim::RunSpec spec = sim_spec(settings);
  const std::optional<SimDispatch> dispatch = dispatch_of(settings, chip, spec);
  if (dispatch) spec = dispatch->spec;
  warn_of_shape(spec);
  sim::OpLogFile file;
  spec.forward = !settings.events;
  spec.layers = settings.layers;
  if (settings.data) spec.inputs = std::make_shared<sim::CounterInputs>();
  if (!settings.trace.empty() || !settings.oplog.empty()) spec.log = &file.log;
  RunResult result;
  {
    SimProgress progress(terminal_write(), now_us());
    spec.progress = [&](sim::Tick now, uint64_t events) {
      progress.within_run(sim::microseconds(now), events, now_us());
    };
    explain_head_packing(spec, [&] { result = sim::run(chip, spec); });
  }
  std::vector<std::optional<sim::Tick>> others;
  if (dispatch) others = ticks_of(chip, *dispatch);
  if (!result.layers_differ.empty()) {
    fail(ErrorKind::kInternal, "the second layer is not the first again, so nothing follows for {}: {}",
         settings.layers, result.layers_differ);
  }

  nlohmann::ordered_json run = {{"kernel", name_of(spec.kernel)},
                                {"variant", settings.variant},
                                {"context", spec.context},
                                {"largest_context", std::max(spec.context, spec.largest_context)},
                                {"cubes", spec.cubes},
                                {"pes", spec.pes},
                                {"tile", spec.tile},
                                {"kv_heads", spec.kv_heads},
                                {"group", spec.rows},
                                {"head_dim", spec.d},
                                {"within", settings.within},
                                {"across", settings.across},
                                {"data", settings.data},
                                {"users", spec.users},
                                {"kv_per_cube", spec.kv_per_cube},
                                {"query_begin", spec.query_begin},
                                {"query_end", spec.query_end},
                                {"query_rows", spec.query_rows},
                                {"layers", settings.layers}};
  chip.pes = spec.pes;
  {
    const Interruption whole_files;  // Ctrl-C waits until they are written
    if (!settings.trace.empty()) sim::write_op_log_trace(settings.trace, chip, file.log);
    if (!settings.oplog.empty()) {
      file.chip = sim::chip_text(chip), file.run = run.dump();
      sim::write_op_log(settings.oplog, file);
    }
  }
  const sim::Tick ticks_of_layers = result.ticks * static_cast<sim::Tick>(settings.layers);
  if (settings.json) {
    nlohmann::ordered_json json = json_of(result, chip, run);
    if (dispatch) {
      json["dispatch"] = json_of(*dispatch);
      for (size_t i = 0; i < others.size(); ++i) {
        json["dispatch"]["alternatives"][dispatch->alternatives[i].name] =
            others[i] ? nlohmann::ordered_json(*others[i]) : nlohmann::ordered_json(nullptr);
      }
    }
    json["ticks_of_layers"] = ticks_of_layers;
    json["layers_simulated"] = std::min(settings.layers, 2);
    return print(json.dump(2) + "\n");
  }
  std::string text = text_of(result, sim_title(settings, spec), spec.users);
  if (dispatch) {
    std::string_view name = "chosen";
    for (const std::string& reason : dispatch->reasons)
      text += fmt::format("{:<16}{}\n", std::exchange(name, ""), reason);
    name = "instead";
    for (size_t i = 0; i < others.size(); ++i) {
      const std::string us = others[i] ? fmt::format("{:.3f} us", sim::microseconds(*others[i])) : "cannot be placed";
      text += fmt::format("{:<16}{}: {}\n", std::exchange(name, ""), dispatch->alternatives[i].name, us);
    }
  }
  if (settings.layers > 1) {
    text += fmt::format(
        "{:<16}{:.3f} us for {}: two were simulated one after the other, and are equal in what every PE did\n",
        "layers", sim::microseconds(ticks_of_layers), settings.layers);
  }
  print(text);
}

}  // namespace coprime
