#include "tools/sim_milestone.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/op_log_file.h"

namespace coprime {
namespace {

using sim::Chip;
using sim::RunResult;
using sim::RunSpec;
using tl::DecodeVariant;
using tl::Kernel;

constexpr int64_t kSmall = 16'384;  // tokens, where what is compared does not depend on them

double ratio(double a, double b) { return a / b; }

RunResult decode(const Chip& chip, const auto& change) {
  RunSpec spec;
  spec.context = kSmall;
  change(spec);
  return sim::run(chip, spec);
}

// The gates that run on two or more results.
class Gates {
 public:
  explicit Gates(const Chip& chip) : chip_(chip) {}

  void all() {
    const RunResult base = decode(chip_, [](RunSpec&) {});
    const RunResult alone = decode(chip_, [](RunSpec& spec) { spec.rows = 1; });
    const auto keys = [](const RunResult& result, int64_t rows) {  // bytes of K and V: without each rank's Q
      return static_cast<int64_t>(result.totals.pes.hbm_read) - result.pes * rows * 128 * 2;
    };
    exact("G2 keys and values read once for all G heads", keys(alone, 1), keys(base, 8), "bytes");
    exact("G2 products grow with G", 8 * static_cast<int64_t>(alone.totals.pes.macs),
          static_cast<int64_t>(base.totals.pes.macs), "MACs");
    exact("G3 rounds of the two-level tree", 6, base.rounds, "");
    exact("G3 sends of a KV head", 189, base.sends_total / 8, "");

    const RunResult blocking = decode(chip_, [](RunSpec& spec) { spec.kernel = Kernel::kBlockingDot; });
    below("G6 opt3 against blocking products", sim::microseconds(base.ticks), sim::microseconds(blocking.ticks), "us");
    below("G6 the bound against opt3", sim::microseconds(base.bounds.front().ticks), sim::microseconds(base.ticks),
          "us");
    const RunResult opt1 = decode(chip_, [](RunSpec& spec) { spec.variant = DecodeVariant::kOpt1; });
    below("G7 opt3 against opt1", sim::microseconds(base.ticks), sim::microseconds(opt1.ticks), "us");

    const RunResult fan_out = decode(chip_, [](RunSpec& spec) { spec.kernel = Kernel::kFanOut; });
    factor("G9 messages of the fan-out for each of the tree's", 64, static_cast<double>(fan_out.sends_total),
           static_cast<double>(base.sends_total));
    factor("G9 rounds of the fan-out for each of the tree's", 10.5, 63, base.rounds);
    below("G9 the tree against the fan-out", sim::microseconds(base.ticks), sim::microseconds(fan_out.ticks), "us");
    for (const auto topology : {attention::ReduceTopology::kChain, attention::ReduceTopology::kStar}) {
      const RunResult other = decode(chip_, [&](RunSpec& spec) { spec.within = spec.across = topology; });
      below(fmt::format("T2 the tree against the {}", name_of(topology)), sim::microseconds(base.ticks),
            sim::microseconds(other.ticks), "us");
    }
  }

  void same_layers() {
    sim::OpLog logs[2];
    RunResult results[2];
    for (int layer = 0; layer < 2; ++layer)
      results[layer] = decode(chip_, [&](RunSpec& spec) { spec.log = &logs[layer]; });
    add("two layers are the same in all that their engines do", fmt::format("{:016x}", sim::op_log_hash(logs[0])),
        fmt::format("{:016x}", sim::op_log_hash(logs[1])),
        sim::op_log_hash(logs[0]) == sim::op_log_hash(logs[1]) && results[0].ticks == results[1].ticks);
  }

  std::vector<Verdict> take() { return std::move(verdicts_); }

 private:
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
  std::vector<Verdict> verdicts_;
};

}  // namespace

Milestone run_milestone(const Chip& chip, const MilestoneOptions& options) {
  Milestone milestone;
  milestone.layers = options.layers;
  for (const bool prefill : {true, false}) {
    RunSpec spec;
    spec.kernel = prefill ? Kernel::kPrefill : Kernel::kDecode;
    spec.context = prefill ? options.prompt : options.context;
    const RunResult result = sim::run(chip, spec);
    for (const int users : {1, options.users})
      milestone.panels.push_back(
          {fmt::format("{}_user {}", users == 1 ? "single" : "multi", prefill ? "prefill" : "decode"), result, users});
  }
  Gates gates(chip);
  gates.all();
  gates.same_layers();
  milestone.verdicts = gates.take();
  return milestone;
}

std::string milestone_table(const Milestone& milestone) {
  std::string text = fmt::format("{:<21} {:>6} {:>13} {:>16} {:>7} {:>8} {:>14}\n", "panel", "users", "us a layer",
                                 fmt::format("ms, {} layers", milestone.layers), "bound", "of time", "HBM bytes");
  for (const Panel& panel : milestone.panels) {
    const sim::Bound& bound = panel.result.bounds.front();
    const double layer = sim::microseconds(panel.result.ticks) * panel.users;
    text += fmt::format("{:<21} {:>6} {:>13.3f} {:>16.3f} {:>7} {:>7.1f}% {:>14}\n", panel.name, panel.users, layer,
                        layer * milestone.layers / 1e3, bound.resource,
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
