#include "plan/plan.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "plan/verdict.h"

namespace coprime {
namespace {

constexpr int64_t kFloatBytes = 4, kLogitsRows = 32, kMostRanks = 8;

double real(int64_t count) { return static_cast<double>(count); }

// Activations of a step of `rows` rows, as the decoder allots them: floats.
double activation_floats(const ModelNumbers& m, const RankLoad& load, int64_t rows) {
  double columns = 3 * real(m.hidden) + real(load.q_heads * m.q_rows) + 2 * real(load.kv_heads * m.head_dim);
  double widest = std::max(real(load.q_heads * m.head_dim), real(load.width));
  double whole = std::max(real(m.q_heads * m.head_dim), real(m.intermediate));
  if (m.linear_layers > 0) {
    const LinearAttentionShape& l = m.linear;
    const double values = real(load.key_heads) * l.value_heads / l.key_heads * l.value_dim;
    columns += 2 * (2 * real(load.key_heads) * l.key_dim + values) + values;
    widest = std::max(widest, values);
    whole = std::max(whole, real(l.value_heads) * l.value_dim);
  }
  columns += real(load.width) + widest + whole;
  return real(rows) * columns + real(std::min(rows, kLogitsRows) * load.vocab);
}

bool shares_memory(const Machine& machine, int64_t ranks) {
  return ranks == 1 || (!machine.repeats && machine.hosts.size() == 1);
}

double slot_bytes(const PlanInput& input, const Split& split) {
  double row = 0;
  for (const GateUse& gate : split.gates) {
    if (gate.count > 0) row = std::max(row, gate.row_bytes);
  }
  return row * real(std::max(input.step_rows, input.batch));
}

RankMemory memory_of(const PlanInput& input, const Split& split, size_t rank) {
  const ModelNumbers& m = input.model;
  const RankLoad& load = split.held[rank];
  RankMemory memory;
  memory.weights = weight_bytes(parameters_of(m, load), input.format);
  memory.step_weights = weight_bytes(read_in_step(m, load, input.batch), input.format);
  if (const bool measured = split.kind == SplitKind::kPad || split.kind == SplitKind::kExact;
      measured && rank < input.weights.size()) {
    memory.weights = real(input.weights[rank].bytes);
    memory.step_weights = real(input.weights[rank].step_bytes);
  }
  memory.kv_per_token = kv_elements(m, load) * input.kv_bytes;
  memory.state = real(input.state_slots) * state_floats(m, load) * kFloatBytes;
  memory.activations = activation_floats(m, load, std::max(input.step_rows, input.batch)) * kFloatBytes;
  const auto ranks = static_cast<int64_t>(split.held.size());
  if (ranks > 1) {
    memory.gate_slots = real(input.window_slots) * slot_bytes(input, split);
    if (!shares_memory(input.machine, ranks))
      memory.scratch = real((ranks - 1) * input.incoming_slots) * slot_bytes(input, split);
  }
  return memory;
}

std::string_view product_name(const PlanFormat& format) { return format.title; }

// A rank's own part of a step: what does not wait for others.
StepTime rank_time(const PlanInput& input, const Split& split, const RankMemory& memory, size_t rank,
                   std::span<const size_t> placement) {
  const RankSpeed speed = rank_speed(input.machine, placement, rank);
  const RankLoad& load = split.held[rank];
  const double tokens = real(input.context) * load.tokens,
               kv = memory.kv_per_token / std::max(load.tokens, 1e-9) * tokens,
               step = memory.step_weights + kv * real(input.batch);
  StepTime time;
  const double ms_per_byte = 1e-6;  // at 1 GB/s
  time.weights = memory.step_weights / speed.product_gb_s(product_name(input.format), step) * ms_per_byte;
  // Keys and values that are kept in fewer bytes are widened: attention is then as fast by elements.
  const double widened = kv * 4 / input.kv_bytes * real(input.batch);
  time.kv =
      std::max(widened / speed.attention_gb_s(widened), real(input.batch) * kv / speed.read_gb_s(step)) * ms_per_byte;
  // A state is read and written.
  const double state = 2 * state_floats(input.model, load) * kFloatBytes * real(input.batch);
  time.state = state / speed.state_gb_s(state) * ms_per_byte;
  const LayerFigure layer = speed.layer();
  time.layers =
      load.layers *
      (real(input.model.attention_layers) * layer.attention_us + real(input.model.linear_layers) * layer.linear_us) /
      1e3;
  return time;
}

// All `gates` of a step with so many rows, in microseconds.
double gates_us(const PlanInput& input, const Split& split, std::span<const size_t> placement, double rows) {
  // Of ranks in a row only two take part in an exchange.
  const std::span<const size_t> members = split.in_turns && placement.size() > 2 ? placement.first(2) : placement;
  double us = 0;
  for (const GateUse& gate : split.gates)
    us += real(gate.count) * machine_gate_us(input.machine, members, gate.row_bytes * rows);
  return us;
}

void time_step(const PlanInput& input, std::span<const size_t> placement, SplitPlan* plan) {
  StepTime& step = plan->step;
  double all_own = 0;
  for (size_t rank = 0; rank < plan->ranks.size(); ++rank) {
    const StepTime own = rank_time(input, plan->split, plan->ranks[rank], rank, placement);
    all_own += own.total();
    if (plan->split.in_turns) {
      step.weights += own.weights, step.kv += own.kv, step.state += own.state, step.layers += own.layers;
    } else if (own.total() > step.total()) {
      step = own;
    }
  }
  step.gates = gates_us(input, plan->split, placement, real(input.batch)) / 1e3;
  if (step.total() > 0) plan->gate_share = 1 - all_own / real(std::ssize(plan->ranks)) / step.total();
  step.front = input.machine.hosts[placement[0]].front_us / 1e3;
}

// A prompt as long as the context, in steps of step_rows rows: the multiplications of each token's weights, and gates.
double prompt_seconds(const PlanInput& input, const Split& split, std::span<const size_t> placement) {
  double slowest = 0;
  for (size_t rank = 0; rank < split.held.size(); ++rank) {
    const RankSpeed speed = rank_speed(input.machine, placement, rank);
    if (speed.host->gflops <= 0) return 0;
    const Parameters read = read_in_step(input.model, split.held[rank], 1);
    const double products = 2 * (read.all() - read.embedding - read.head) * real(input.context),
                 s = products / (speed.host->gflops / real(speed.on_host) * 1e9);
    slowest = split.in_turns ? slowest + s : std::max(slowest, s);
  }
  const double rows = real(std::min(input.step_rows, input.context)), steps = std::ceil(real(input.context) / rows);
  return slowest + steps * gates_us(input, split, placement, rows) / 1e6;
}

SplitPlan plan_split(const PlanInput& input, Split split, std::span<const size_t> placement) {
  SplitPlan plan{.split = std::move(split)};
  for (const GateUse& gate : plan.split.gates) {
    plan.gates += gate.count;
    plan.gate_bytes += real(gate.count) * gate.row_bytes * real(input.batch);
  }
  if (!plan.split.unfit.empty()) return plan;
  for (size_t rank = 0; rank < plan.split.held.size(); ++rank) plan.ranks.push_back(memory_of(input, plan.split, rank));
  time_step(input, placement, &plan);
  plan.prompt_s = prompt_seconds(input, plan.split, placement);
  return plan;
}

double busiest(const SplitPlan& plan) {
  double bytes = 0;
  for (const RankMemory& rank : plan.ranks) bytes = std::max(bytes, rank.step_weights);
  return bytes;
}

std::vector<double> shares_of(const PlanInput& input, std::span<const size_t> placement) {
  if (!input.machine.shares.empty()) return input.machine.shares;
  std::vector<double> shares;
  for (size_t rank = 0; rank < placement.size(); ++rank)
    shares.push_back(rank_speed(input.machine, placement, rank).read_gb_s(1e9));
  return shares;
}

double memory_per_rank(const PlanInput& input, std::span<const size_t> placement, size_t rank) {
  if (input.memory_bytes > 0) return real(input.memory_bytes);
  const RankSpeed speed = rank_speed(input.machine, placement, rank);
  return real(speed.host->memory_bytes) / real(speed.on_host);
}

// The longest context of `batch` sequences that every rank has room for.
int64_t longest_context(const PlanInput& input, const SplitPlan& plan, std::span<const size_t> placement) {
  double longest = real(input.model.max_positions);
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const RankMemory& memory = plan.ranks[rank];
    const double available = memory_per_rank(input, placement, rank);
    if (available <= 0) return -1;
    const double left = available - memory.fixed() - real(input.batch) * memory.state;
    if (left < 0) return 0;
    if (memory.kv_per_token > 0) longest = std::min(longest, left / (memory.kv_per_token * real(input.batch)));
  }
  return static_cast<int64_t>(longest);
}

DrafterPlan plan_drafter(const PlanInput& input, const PaddedCounts& target) {
  const DrafterInput& drafter = *input.drafter;
  const int64_t ranks = input.pad_for, elements = target.kv_heads * input.model.head_dim;
  DrafterPlan plan{.model = drafter.model, .format = drafter.format, .stock = stock_counts(drafter.model)};
  const auto padded = pad_drafter_counts(drafter.model, drafter.format, ranks, elements);
  plan.shares_cache = padded.has_value();
  plan.padded = padded.value_or(pad_counts(drafter.model, drafter.format, ranks));
  const auto split = all_splits(drafter.model, drafter.format, {.ranks = input.ranks, .pad_for = ranks});
  for (const RankLoad& load : split[0].held)
    plan.bytes = std::max(plan.bytes, weight_bytes(parameters_of(drafter.model, load), drafter.format));
  return plan;
}

std::vector<LinkCost> link_costs(const PlanInput& input, const SplitPlan& plan) {
  std::vector<LinkCost> costs;
  const auto ranks = static_cast<int64_t>(plan.ranks.size());
  for (const LinkNumbers& link : typical_links()) {
    LinkCost cost{.link = link};
    for (const GateUse& gate : plan.split.gates)
      cost.gates_ms += real(gate.count) * gate_us(link, ranks, gate.row_bytes * real(input.batch)) / 1e3;
    cost.gate_us = plan.gates == 0 ? 0 : cost.gates_ms * 1e3 / real(plan.gates);
    cost.step_ms = plan.step.total() - plan.step.gates + cost.gates_ms;
    costs.push_back(cost);
  }
  return costs;
}

std::vector<RankCountRow> rank_counts(const PlanInput& input) {
  std::vector<RankCountRow> rows;
  for (int64_t ranks = 1; ranks <= std::max(kMostRanks, input.ranks); ++ranks) {
    RankCountRow row{.ranks = ranks,
                     .refusals = equal_division_refusals(input.model, ranks),
                     .strict_refuses = strict_division_refuses(input.model, ranks)};
    PlanInput other = input;
    other.ranks = other.pad_for = ranks;
    if (ranks != input.ranks) other.weights.clear();
    try {
      const auto placement = place_ranks(input.machine, ranks);
      const auto splits = all_splits(other.model, other.format, {.ranks = ranks, .pad_for = ranks});
      const SplitPlan plan = plan_split(other, splits[input.exact ? 1 : 0], placement);
      row.placed = plan.split.unfit.empty();
      row.step = plan.step;
      row.busiest_bytes = busiest(plan);
    } catch (const Error&) {
      row.placed = false;
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

Plan make_plan(PlanInput input) {
  check_ranks(input.machine, input.ranks);
  const auto placement = place_ranks(input.machine, input.ranks);
  Plan plan;
  plan.stock = stock_counts(input.model);
  plan.padded = pad_counts(input.model, input.format, input.pad_for);
  const SplitOptions options{.ranks = input.ranks, .pad_for = input.pad_for, .shares = shares_of(input, placement)};
  for (Split& split : all_splits(input.model, input.format, options))
    plan.splits.push_back(plan_split(input, std::move(split), placement));
  plan.chosen = input.exact ? 1 : 0;
  if (!plan.main().split.unfit.empty()) plan.chosen = static_cast<size_t>(SplitKind::kOverlap);
  plan.cheapest = plan.chosen;
  for (size_t i = 0; i < plan.splits.size(); ++i) {
    const SplitPlan& split = plan.splits[i];
    if (split.split.unfit.empty() && split.step.total() < plan.splits[plan.cheapest].step.total()) plan.cheapest = i;
  }

  const RankLoad whole = whole_load(input.model);
  plan.parameters = parameters_of(input.model, whole);
  RankLoad widened = whole;
  widened.q_heads = widened.o_heads = plan.padded.q_heads;
  widened.kv_heads = plan.padded.kv_heads;
  widened.key_heads = plan.padded.key_heads;
  widened.width = plan.padded.width;
  widened.expert_width = plan.padded.expert_width;
  widened.shared_width = plan.padded.shared_width;
  widened.vocab = plan.padded.vocab;
  plan.padded_parameters = parameters_of(input.model, widened).all();
  const SplitPlan& main = plan.main();
  const double even = weight_bytes(read_in_step(input.model, whole, input.batch), input.format) / real(input.ranks);
  double most_kv = 0;
  for (size_t rank = 0; rank < main.ranks.size(); ++rank) {
    const double bytes = weight_bytes(read_in_step(input.model, main.split.held[rank], input.batch), input.format);
    plan.busiest_overhead = std::max(plan.busiest_overhead, bytes / even - 1);
    most_kv = std::max(most_kv, main.ranks[rank].kv_per_token);
  }
  const double whole_kv = kv_elements(input.model, whole) * input.kv_bytes;
  plan.kv_overhead = whole_kv > 0 ? most_kv * real(input.ranks) / whole_kv - 1 : 0;

  plan.joined_by = machine_link_name(input.machine, placement);
  plan.links = link_costs(input, main);
  plan.rank_counts = rank_counts(input);
  plan.longest_context = longest_context(input, main, placement);
  PlanInput alone = input;
  alone.batch = 1;
  plan.longest_of_one = longest_context(alone, plan_split(alone, main.split, placement), placement);
  for (size_t rank = 0; rank < main.ranks.size(); ++rank) {
    const double bytes = memory_per_rank(input, placement, rank);
    plan.memory_bytes = rank == 0 ? bytes : std::min(plan.memory_bytes, bytes);
  }
  if (input.drafter) plan.drafter = plan_drafter(input, plan.padded);
  plan.input = std::move(input);
  plan.verdict = verdict_of(plan);
  return plan;
}

}  // namespace coprime
