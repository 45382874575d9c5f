#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "plan/plan_quantities.h"
#include "plan/plan_report.h"

namespace coprime {
namespace {

constexpr size_t kShownRanks = 8;

std::string ranks_text(int64_t ranks) { return fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s"); }

std::string ms_text(double ms) {
  return ms < 0.1 ? fmt::format("{:.3f}", ms) : ms < 10 ? fmt::format("{:.2f}", ms) : fmt::format("{:.1f}", ms);
}

std::string percent(double share) { return fmt::format("{:+.1f}%", 100 * share); }

// "12 12 0"; of many ranks the first and the last.
std::string by_rank(const std::vector<int64_t>& counts) {
  if (counts.size() <= kShownRanks && std::ranges::adjacent_find(counts, std::not_equal_to<>()) != counts.end()) {
    const std::string text = fmt::format("{}", fmt::join(counts, " "));
    if (text.size() <= 22) return text;
  }
  if (std::ranges::adjacent_find(counts, std::not_equal_to<>()) == counts.end())
    return fmt::format("{} each", counts[0]);
  return fmt::format("{} ... {}", counts.front(), counts.back());
}

std::string head(const Plan& plan) {
  const PlanInput& input = plan.input;
  const ModelNumbers& m = input.model;
  std::string text = fmt::format("{} on {}", m.name, ranks_text(input.ranks));
  if (input.pad_for != input.ranks) text += fmt::format(", widened for {}", input.pad_for);
  if (input.exact) text += ", exact";
  text += fmt::format("\n{} layers", m.layers);
  if (m.linear_layers > 0) text += fmt::format(" ({} attention, {} linear)", m.attention_layers, m.linear_layers);
  if (m.has_experts()) text += fmt::format(", {} experts, {} read for a token", m.experts, m.active_experts);
  text += fmt::format(", hidden size {}; {:.3g} G parameters\nweights {}, {}\n", m.hidden, plan.parameters.all() / 1e9,
                      input.format.title, input.format_source);
  const Machine& machine = input.machine;
  text += fmt::format("machine {}: {}\n", machine.name, machine.source);
  if (input.ranks > 1) text += fmt::format("ranks joined by {}\n", plan.joined_by);
  if (!machine.measured)
    text += "these are typical figures; yours: coprime probe --out here.json, then --machine here.json\n";
  return text;
}

std::string quantities(const Plan& plan) {
  std::string text = fmt::format("\n{:<19}{:>8}{:>8}{:>8}  {:<22} {}\n", "who owns what", "stock", "padded", "a rank",
                                 "real, by rank", "why");
  for (const Quantity& q : plan_quantities(plan)) {
    text += fmt::format("{:<19}{:>8}{:>8}{:>8}  {:<22} {}\n", q.title, q.stock, q.padded,
                        *std::ranges::max_element(q.held), by_rank(q.real), q.reason);
  }
  text += fmt::format("padding: parameters {}, KV {}; the busiest rank reads {} over an even share\n",
                      percent(plan.padded_parameters / plan.parameters.all() - 1), percent(plan.kv_overhead),
                      percent(plan.busiest_overhead));
  return text;
}

std::string memory(const Plan& plan) {
  const PlanInput& input = plan.input;
  std::string text = fmt::format("\n{:<10}{:>12}{:>12}{:>14}{:>13}{:>12}{:>13}\n", "memory", "weights", "KV a token",
                                 "state a seq.", "gate slots", "scratch", "activations");
  for (size_t rank = 0; rank < plan.main().ranks.size(); ++rank) {
    const RankMemory& m = plan.main().ranks[rank];
    text += fmt::format("rank {:<5}{:>12}{:>12}{:>14}{:>13}{:>12}{:>13}\n", rank, size_text(m.weights),
                        size_text(m.kv_per_token), size_text(m.state), size_text(m.gate_slots), size_text(m.scratch),
                        size_text(m.activations));
  }
  if (plan.memory_bytes > 0 && plan.longest_context > 0) {
    text +=
        fmt::format("{} a rank hold {} of {} tokens at most{}\n", size_text(plan.memory_bytes),
                    input.batch == 1 ? "a sequence" : fmt::format("{} sequences", input.batch), plan.longest_context,
                    plan.longest_context == input.model.max_positions ? ", the model's longest" : "");
  }
  return text;
}

std::string step(const Plan& plan) {
  const StepTime& s = plan.main().step;
  const double tokens_s = s.total() > 0 ? 1e3 * static_cast<double>(plan.input.batch) / s.total() : 0;
  std::string text = fmt::format("\nA step of decode at {} tokens: {} ms, {:.1f} tokens/s. Its parts in ms:\n",
                                 plan.input.context, ms_text(s.total()), tokens_s);
  text += fmt::format("weights {}  KV {}  state {}  gates {}  layers' other work {}  front {}\n", ms_text(s.weights),
                      ms_text(s.kv), ms_text(s.state), ms_text(s.gates), ms_text(s.layers), ms_text(s.front));
  if (plan.main().prompt_s > 0)
    text += fmt::format("A prompt of {} tokens: about {:.3g} s\n", plan.input.context, plan.main().prompt_s);
  return text;
}

std::string links(const Plan& plan) {
  if (plan.input.ranks == 1) return "";
  std::string text =
      fmt::format("\n{} gates a step, {} to each peer\n{:<28}{:>12}{:>15}{:>14}{:>12}\n", plan.main().gates,
                  size_text(plan.main().gate_bytes), "over", "a gate us", "gates, ms", "step, ms", "tokens/s");
  for (const LinkCost& cost : plan.links) {
    text += fmt::format("{:<28}{:>12.1f}{:>15}{:>14}{:>12.1f}\n", cost.link.title, cost.gate_us, ms_text(cost.gates_ms),
                        ms_text(cost.step_ms), 1e3 * static_cast<double>(plan.input.batch) / cost.step_ms);
  }
  return text;
}

std::string splits(const Plan& plan) {
  if (plan.input.ranks == 1) return "";
  std::string text = fmt::format("\n{:<11}{:<42}{:>9}{:>8}{:>13}{:>13}\n", "split", "", "step, ms", "gates",
                                 "weights read", "KV a token");
  for (const SplitPlan& split : plan.splits) {
    const std::string title = fmt::format("{}{}", split.split.title, split.split.runs ? "" : " *");
    if (!split.split.unfit.empty()) {
      text += fmt::format("{:<11}{:<42} no: {}\n", split.split.name, title, split.split.unfit);
      continue;
    }
    double read = 0, kv = 0;
    for (const RankMemory& rank : split.ranks)
      read = std::max(read, rank.step_weights), kv = std::max(kv, rank.kv_per_token);
    text += fmt::format("{:<11}{:<42}{:>9}{:>8}{:>13}{:>13}\n", split.split.name, title, ms_text(split.step.total()),
                        split.gates, size_text(read), size_text(kv));
  }
  return text + "(* coprime does not run it yet; bytes are those of the busiest rank)\n";
}

std::string rank_counts(const Plan& plan) {
  std::string text = fmt::format("\n{:<7}{:>9}{:>9}{:>14}  {:<50}{}\n", "ranks", "step, ms", "speed-up", "weights read",
                                 "vLLM, SGLang on GPUs", "MLC");
  const double one = plan.rank_counts.front().step.total();
  for (const RankCountRow& row : plan.rank_counts) {
    const std::string others =
        row.refusals.any() ? fmt::format("refuse: {}", fmt::join(refusal_reasons(plan.input.model, row.ranks), ", "))
                           : "run";
    const std::string strict = row.strict_refuses ? "refuse" : "run";
    if (row.placed) {
      text += fmt::format("{:<7}{:>9}{:>9.2f}{:>14}", row.ranks, ms_text(row.step.total()), one / row.step.total(),
                          size_text(row.busiest_bytes));
    } else {
      text += fmt::format("{:<7}{:>9}{:>9}{:>14}", row.ranks, "-", "-", "-");
    }
    std::string shown = others;
    if (shown.size() > 49) shown = fmt::format("refuse: {}", short_reasons(plan.input.model, row.ranks));
    text += fmt::format("  {:<50}{}\n", shown, strict);
  }
  return text;
}

std::string drafter(const Plan& plan) {
  if (!plan.drafter) return "";
  const DrafterPlan& d = *plan.drafter;
  const auto change = [](int64_t a, int64_t b) {
    return a == b ? fmt::format("{}", a) : fmt::format("{} -> {}", a, b);
  };
  std::string text =
      fmt::format("\ndrafter {} ({}), {} on the busiest rank\n", d.model.name, d.format.title, size_text(d.bytes));
  text += fmt::format("query heads {}, KV heads {}, MLP width {}\n", change(d.stock.q_heads, d.padded.q_heads),
                      change(d.stock.kv_heads, d.padded.kv_heads), change(d.stock.width, d.padded.width));
  text += d.shares_cache ? "its KV bytes a token equal the target's, so both share one cache\n"
                         : "no count of its KV heads has the target's KV bytes a token: it needs a cache of its own\n";
  return text;
}

}  // namespace

std::string size_text(double bytes) {
  if (bytes == 0) return "0";
  constexpr std::pair<double, const char*> kUnits[] = {{1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}};
  for (const auto& [unit, name] : kUnits) {
    if (bytes < unit) continue;
    return bytes < 10 * unit ? fmt::format("{:.2f} {}", bytes / unit, name)
                             : fmt::format("{:.1f} {}", bytes / unit, name);
  }
  return fmt::format("{:.0f} B", bytes);
}

std::string plan_text(const Plan& plan) {
  std::string text = head(plan) + quantities(plan) + drafter(plan) + memory(plan) + step(plan) + links(plan) +
                     splits(plan) + rank_counts(plan);
  text += "\n";
  for (const std::string& line : plan.verdict) text += fmt::format("- {}\n", line);
  return text;
}

}  // namespace coprime
