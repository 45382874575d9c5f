#include "plan/verdict.h"

#include <algorithm>

#include <fmt/format.h>

#include "plan/plan_report.h"

namespace coprime {
namespace {

constexpr double kNoticeable = 1.03;  // less is within the prediction's error
constexpr double kSlowGates = 0.5;    // of a step's time

const RankCountRow& row_of(const Plan& plan, int64_t ranks) {
  return *std::ranges::find(plan.rank_counts, ranks, &RankCountRow::ranks);
}

// The count of ranks, at most as many as asked for, that takes the least time, among those that hold the model.
const RankCountRow& fastest_up_to(const Plan& plan, int64_t ranks, bool must_fit) {
  const RankCountRow* best = &row_of(plan, ranks);
  for (const RankCountRow& row : plan.rank_counts) {
    if (row.ranks > ranks || !row.placed) continue;
    if (must_fit && plan.memory_bytes > 0 && row.busiest_bytes > plan.memory_bytes) continue;
    if (row.step.total() * kNoticeable < best->step.total()) best = &row;
  }
  return *best;
}

// Ranks of one host exchange through its memory: no link to buy is faster.
bool one_host(const Plan& plan) {
  return on_one_host(plan.input.machine, place_ranks(plan.input.machine, plan.input.ranks));
}

std::string ranks_text(int64_t ranks) { return fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s"); }

void judge_speed(const Plan& plan, std::vector<std::string>& lines) {
  const int64_t ranks = plan.input.ranks;
  const RankCountRow &row = row_of(plan, ranks), &one = row_of(plan, 1);
  if (ranks == 1 || !row.placed || !one.placed) return;
  const bool one_fits = plan.memory_bytes <= 0 || one.busiest_bytes <= plan.memory_bytes;
  const double gain = one.step.total() / row.step.total(), gates = row.step.gates / row.step.total();
  const RankCountRow& best = fastest_up_to(plan, ranks, true);
  if (best.ranks < ranks) {
    lines.push_back(fmt::format(
        "{} would be faster than {}: {:.2f} against {:.2f} ms a token; {:.0f}% of the time goes to gates. Use {}{}",
        ranks_text(best.ranks), ranks, best.step.total(), row.step.total(), 100 * gates, best.ranks,
        gates > kSlowGates && !one_host(plan) ? ", or a faster link (see the links above)" : ""));
  } else if (gain < kNoticeable) {
    lines.push_back(fmt::format("{} are {:.2f} times as fast as one: more ranks do not help here{}", ranks_text(ranks),
                                gain, one_fits ? "" : ", but one has not the memory"));
  } else {
    lines.push_back(fmt::format("{} are {:.2f} times as fast as one{}", ranks_text(ranks), gain,
                                one_fits ? "" : ", which has not the memory"));
  }
  if (plan.input.model.has_experts() && gain < kNoticeable) {
    lines.push_back(
        "A mixture of experts reads few weights a token, so gates weigh more than in a dense model: ranks gain memory "
        "here, not speed");
  }
}

void judge_memory(const Plan& plan, std::vector<std::string>& lines) {
  if (plan.memory_bytes <= 0) return;
  double need = 0;
  for (const RankMemory& rank : plan.main().ranks)
    need = std::max(need, rank.fixed() + static_cast<double>(plan.input.batch) * rank.state);
  const bool batch_helps = plan.input.batch > 1 && plan.longest_of_one > std::max<int64_t>(plan.longest_context, 0);
  if (plan.longest_context <= 0) {
    const std::string_view remedy =
        batch_helps ? "use a smaller batch, more ranks, or a smaller format" : "use more ranks, or a smaller format";
    lines.push_back(
        need > plan.memory_bytes
            ? fmt::format("It does not fit: the busiest rank needs {} before any token and has {}: {}", size_text(need),
                          size_text(plan.memory_bytes), remedy)
            : fmt::format("It does not fit: the busiest rank needs {} before any token, and what it has, {}, leaves no "
                          "room for one of each sequence: {}",
                          size_text(need), size_text(plan.memory_bytes), remedy));
  } else if (plan.longest_context < plan.input.context) {
    lines.push_back(
        batch_helps
            ? fmt::format("{} sequences of {} tokens do not fit, {} tokens each do: use a smaller batch or context",
                          plan.input.batch, plan.input.context, plan.longest_context)
            : fmt::format("A context of {} does not fit; {} tokens do", plan.input.context, plan.longest_context));
  }
}

void judge_splits(const Plan& plan, std::vector<std::string>& lines) {
  const SplitPlan &main = plan.main(), &best = plan.splits[plan.cheapest];
  if (plan.input.ranks == 1 || best.step.total() * kNoticeable > main.step.total()) return;
  lines.push_back(fmt::format("\"{}\" would take {:.2f} ms a token instead of {:.2f}{}", best.split.name,
                              best.step.total(), main.step.total(),
                              best.split.runs ? "" : "; coprime does not run it yet"));
}

void judge_links(const Plan& plan, std::vector<std::string>& lines) {
  const StepTime& step = plan.main().step;
  if (one_host(plan) || step.gates < kSlowGates / 2 * step.total()) return;
  for (const LinkCost& cost : plan.links) {
    if (cost.gates_ms > step.gates / 2 || cost.link.name == "shm") continue;
    lines.push_back(fmt::format("Gates take {:.0f}% of a token; over {} they would take {:.2f} ms instead of {:.2f}",
                                100 * step.gates / step.total(), cost.link.title, cost.gates_ms, step.gates));
    return;
  }
}

// What the time of gates rests on, where nobody measured it.
void judge_gates(const Plan& plan, std::vector<std::string>& lines) {
  const Machine& machine = plan.input.machine;
  const int64_t ranks = plan.input.ranks;
  if (ranks == 1) return;
  if (const MeasuredGates* const gates = gates_for(machine, ranks); gates != nullptr && gates->ranks != ranks) {
    lines.push_back(
        fmt::format("Gates of {} ranks were not measured: those of {}, times {}/{}, since a gate of n ranks does n - 1 "
                    "exchanges",
                    ranks, gates->ranks, ranks - 1, gates->ranks - 1));
  }
  const auto placement = place_ranks(machine, ranks);
  if (const auto pair = pair_without_link(machine, ranks)) {
    lines.push_back(
        fmt::format("No file tells the link between ranks {} and {}: links that none tells count as typical ones, "
                    "shared memory on one host and 10 Gb/s Ethernet between hosts",
                    pair->first, pair->second));
  }
  for (size_t host = 0; host < machine.hosts.size() && !machine.repeats; ++host) {
    const int64_t cores = machine.hosts[host].cores, there = std::ranges::count(placement, host);
    if (cores > 0 && there > cores)
      lines.push_back(fmt::format("{}: more ranks than cores ({} on {}): gates will wait for the scheduler",
                                  machine.hosts[host].name, there, cores));
  }
}

}  // namespace

std::vector<std::string> verdict_of(const Plan& plan) {
  std::vector<std::string> lines;
  if (!plan.input.model.refusal.empty())
    lines.push_back("coprime does not run this model yet: " + plan.input.model.refusal);
  if (plan.input.model.refusal.empty() && !plan.input.format.runs)
    lines.push_back(fmt::format("coprime does not compute with {} yet", plan.input.format.title));
  judge_gates(plan, lines);
  judge_memory(plan, lines);
  judge_speed(plan, lines);
  judge_links(plan, lines);
  judge_splits(plan, lines);
  return lines;
}

}  // namespace coprime
