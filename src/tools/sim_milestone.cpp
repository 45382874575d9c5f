#include "tools/sim_milestone.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coprime {
namespace {

using sim::Chip;
using sim::RunResult;
using sim::RunSpec;
using tl::DecodeVariant;
using tl::Kernel;

constexpr int64_t kSmall = 16'384;  // tokens, where what is compared does not depend on them

double ratio(double a, double b) { return a / b; }

// The gates that run on two or more results.
class Gates {
 public:
  Gates(const Chip& chip, const sim::Machine::Progress& progress) : chip_(chip), progress_(progress) {}

  void all() {
    const RunResult base = decode([](RunSpec&) {});
    const RunResult alone = decode([](RunSpec& spec) { spec.rows = 1; });
    const auto keys = [](const RunResult& result, int64_t rows) {  // bytes of K and V: without each rank's Q
      return static_cast<int64_t>(result.totals.pes.hbm_read) - result.pes * rows * 128 * 2;
    };
    exact("G2 keys and values read once for all G heads", keys(alone, 1), keys(base, 8), "bytes");
    exact("G2 products grow with G", 8 * static_cast<int64_t>(alone.totals.pes.macs),
          static_cast<int64_t>(base.totals.pes.macs), "MACs");
    exact("G3 rounds of the two-level tree", 6, base.rounds, "");
    exact("G3 sends of a KV head", 189, base.sends_total / 8, "");

    const RunResult blocking = decode([](RunSpec& spec) { spec.kernel = Kernel::kBlockingDot; });
    below("G6 opt3 against blocking products", sim::microseconds(base.ticks), sim::microseconds(blocking.ticks), "us");
    below("G6 the bound against opt3", sim::microseconds(base.bounds.front().ticks), sim::microseconds(base.ticks),
          "us");
    const RunResult opt1 = decode([](RunSpec& spec) { spec.variant = DecodeVariant::kOpt1; });
    below("G7 opt3 against opt1", sim::microseconds(base.ticks), sim::microseconds(opt1.ticks), "us");

    const RunResult fan_out = decode([](RunSpec& spec) { spec.kernel = Kernel::kFanOut; });
    factor("G9 messages of the fan-out for each of the tree's", 64, static_cast<double>(fan_out.sends_total),
           static_cast<double>(base.sends_total));
    factor("G9 rounds of the fan-out for each of the tree's", 10.5, 63, base.rounds);
    below("G9 the tree against the fan-out", sim::microseconds(base.ticks), sim::microseconds(fan_out.ticks), "us");
    for (const auto topology : {attention::ReduceTopology::kChain, attention::ReduceTopology::kStar}) {
      const RunResult other = decode([&](RunSpec& spec) { spec.within = spec.across = topology; });
      below(fmt::format("T2 the tree against the {}", name_of(topology)), sim::microseconds(base.ticks),
            sim::microseconds(other.ticks), "us");
    }
  }

  // By every operation of a small run's op_log, by what each PE did of a panel.
  void same_layers(const std::vector<Panel>& panels) {
    sim::OpLog log;
    const RunResult small = decode([&](RunSpec& spec) { spec.log = &log, spec.layers = 2; });
    same("two layers are the same, operation by operation", small);
    for (const Panel& panel : panels) same("two layers are the same: " + panel.name, panel.result);
  }

  void overlap(const std::vector<Panel>& panels) {
    for (const Panel& panel : panels) {
      if (panel.users > 1)
        below("R59 users at once: " + panel.name, sim::microseconds(panel.result.ticks),
              sim::microseconds(panel.one_by_one), "us");
    }
  }

  std::vector<Verdict> take() { return std::move(verdicts_); }

 private:
  RunResult decode(const auto& change) {
    RunSpec spec;
    spec.context = kSmall;
    spec.progress = progress_;
    change(spec);
    return sim::run(chip_, spec);
  }
  void same(const std::string& gate, const RunResult& result) {
    add(gate, "equal", result.layers_differ.empty() ? "equal" : result.layers_differ, result.layers_differ.empty());
  }
  void add(const std::string& gate, const std::string& expected, const std::string& found, bool holds) {
    verdicts_.push_back({gate, expected, found, holds});
  }
  void exact(const std::string& gate, int64_t expected, int64_t found, std::string_view unit) {
    add(gate, fmt::format("{} {}", expected, unit), fmt::format("{}", found), expected == found);
  }
  void below(const std::string& gate, double found, double limit, std::string_view unit) {
    add(gate, fmt::format("below {:.3f} {}", limit, unit), fmt::format("{:.3f}", found), found < limit);
  }
  void factor(const std::string& gate, double expected, double a, double b) {
    add(gate, fmt::format("{:g}", expected), fmt::format("{:g}", ratio(a, b)), std::abs(ratio(a, b) - expected) < 1e-9);
  }

  const Chip& chip_;
  const sim::Machine::Progress& progress_;
  std::vector<Verdict> verdicts_;
};

}  // namespace

Milestone run_milestone(const Chip& chip, const MilestoneOptions& options, const sim::Machine::Progress& progress) {
  Milestone milestone;
  milestone.layers = options.layers;
  for (const bool prefill : {true, false}) {
    RunSpec spec;
    spec.kernel = prefill ? Kernel::kPrefill : Kernel::kDecode;
    spec.context = prefill ? options.prompt : options.context;
    spec.layers = options.layers;
    spec.progress = progress;
    sim::Tick alone = 0;
    for (const bool multi : {false, true}) {
      spec.users = multi ? options.users : 1;
      const RunResult result = sim::run(chip, spec);
      if (!multi) alone = result.ticks;
      milestone.panels.push_back({fmt::format("{}_user {}", multi ? "multi" : "single", prefill ? "prefill" : "decode"),
                                  result, spec.users, alone * static_cast<sim::Tick>(spec.users)});
    }
  }
  Gates gates(chip, progress);
  gates.all();
  if (options.layers > 1) gates.same_layers(milestone.panels);
  gates.overlap(milestone.panels);
  milestone.verdicts = gates.take();
  return milestone;
}

std::string milestone_table(const Milestone& milestone) {
  std::string text =
      fmt::format("{:<21} {:>6} {:>13} {:>13} {:>16} {:>7} {:>8} {:>14}\n", "panel", "users", "us a layer",
                  "one by one", fmt::format("ms, {} layers", milestone.layers), "bound", "of time", "HBM bytes");
  for (const Panel& panel : milestone.panels) {
    const sim::Bound& bound = panel.result.bounds.front();
    const double layer = sim::microseconds(panel.result.ticks);
    text += fmt::format("{:<21} {:>6} {:>13.3f} {:>13.3f} {:>16.3f} {:>7} {:>7.1f}% {:>14}\n", panel.name, panel.users,
                        layer, sim::microseconds(panel.one_by_one), layer * milestone.layers / 1e3, bound.resource,
                        100 * sim::microseconds(bound.ticks) / sim::microseconds(panel.result.totals.end.time),
                        panel.result.totals.pes.hbm_read);
  }
  text += fmt::format("\n{:<56} {:>22} {:>18}\n", "gate", "expected", "found");
  for (const Verdict& verdict : milestone.verdicts)
    text += fmt::format("{:<56} {:>22} {:>18}  {}\n", verdict.gate, verdict.expected, verdict.found,
                        verdict.holds ? "holds" : "FAILS");
  return text;
}

}  // namespace coprime
