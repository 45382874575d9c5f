#include <nlohmann/json.hpp>

#include "plan/plan_quantities.h"
#include "plan/plan_report.h"

namespace coprime {
namespace {

using nlohmann::json;

json step_json(const StepTime& step) {
  return {{"total_ms", step.total()}, {"weights_ms", step.weights}, {"kv_ms", step.kv},      {"state_ms", step.state},
          {"gates_ms", step.gates},   {"layers_ms", step.layers},   {"front_ms", step.front}};
}

int64_t whole(double bytes) { return static_cast<int64_t>(bytes + 0.5); }

json rank_json(const RankMemory& rank) {
  return {{"weight_bytes", whole(rank.weights)},
          {"step_weight_bytes", whole(rank.step_weights)},
          {"kv_bytes_per_token", whole(rank.kv_per_token)},
          {"state_bytes", whole(rank.state)},
          {"gate_slot_bytes", whole(rank.gate_slots)},
          {"scratch_bytes", whole(rank.scratch)},
          {"activation_bytes", whole(rank.activations)}};
}

json quantities_json(const Plan& plan) {
  json object = json::object();
  for (const Quantity& q : plan_quantities(plan)) {
    object[std::string(q.key)] = {{"stock", q.stock},
                                  {"padded", q.padded},
                                  {"real_by_rank", q.real},
                                  {"held_by_rank", q.held},
                                  {"reason", q.reason}};
  }
  return object;
}

json model_json(const Plan& plan) {
  const ModelNumbers& m = plan.input.model;
  return {{"architecture", m.name},
          {"runs", m.refusal.empty()},
          {"refusal", m.refusal},
          {"layers", m.layers},
          {"attention_layers", m.attention_layers},
          {"linear_layers", m.linear_layers},
          {"hidden_size", m.hidden},
          {"experts", m.experts},
          {"active_experts", m.active_experts},
          {"max_positions", m.max_positions},
          {"parameters", whole(plan.parameters.all())}};
}

json splits_json(const Plan& plan) {
  json list = json::array();
  for (const SplitPlan& split : plan.splits) {
    json entry{{"split", split.split.name}, {"title", split.split.title}, {"runs", split.split.runs}};
    if (!split.split.unfit.empty()) {
      entry["unfit"] = split.split.unfit;
    } else {
      entry["step"] = step_json(split.step);
      entry["gates"] = split.gates;
      entry["ranks"] = json::array();
      for (const RankMemory& rank : split.ranks) entry["ranks"].push_back(rank_json(rank));
    }
    list.push_back(std::move(entry));
  }
  return list;
}

json rank_counts_json(const Plan& plan) {
  json list = json::array();
  for (const RankCountRow& row : plan.rank_counts) {
    json entry{{"ranks", row.ranks},
               {"vllm_refuses", row.refusals.letters()},
               {"vllm_reasons", refusal_reasons(plan.input.model, row.ranks)},
               {"mlc_refuses", row.strict_refuses}};
    if (row.placed) entry["step"] = step_json(row.step), entry["busiest_step_weight_bytes"] = whole(row.busiest_bytes);
    list.push_back(std::move(entry));
  }
  return list;
}

json drafter_json(const DrafterPlan& drafter) {
  const auto counts = [](const PaddedCounts& c) {
    return json{{"q_heads", c.q_heads}, {"kv_heads", c.kv_heads}, {"mlp_width", c.width}, {"vocab", c.vocab}};
  };
  return {{"architecture", drafter.model.name},   {"format", drafter.format.name},
          {"stock", counts(drafter.stock)},       {"padded", counts(drafter.padded)},
          {"shares_cache", drafter.shares_cache}, {"weight_bytes", whole(drafter.bytes)}};
}

}  // namespace

std::string plan_json(const Plan& plan) {
  const PlanInput& input = plan.input;
  const SplitPlan& main = plan.main();
  json links = json::array(), ranks = json::array();
  for (const LinkCost& cost : plan.links) {
    links.push_back({{"link", cost.link.name},
                     {"title", cost.link.title},
                     {"latency_us", cost.link.latency_us},
                     {"gb_s", cost.link.gb_s},
                     {"source", cost.link.source},
                     {"gate_us", cost.gate_us},
                     {"gates_ms", cost.gates_ms},
                     {"step_ms", cost.step_ms}});
  }
  for (const RankMemory& rank : main.ranks) ranks.push_back(rank_json(rank));
  json object{
      {"model", model_json(plan)},
      {"format", input.format.name},
      {"format_source", input.format_source},
      {"machine",
       {{"name", input.machine.name},
        {"source", input.machine.source},
        {"measured", input.machine.measured},
        {"joined_by", plan.joined_by}}},
      {"ranks", input.ranks},
      {"pad_for", input.pad_for},
      {"context", input.context},
      {"batch", input.batch},
      {"exact", input.exact},
      {"quantities", quantities_json(plan)},
      {"overhead",
       {{"parameters", plan.padded_parameters / plan.parameters.all() - 1},
        {"busiest_rank", plan.busiest_overhead},
        {"kv", plan.kv_overhead}}},
      {"memory_by_rank", ranks},
      {"memory_bytes", whole(plan.memory_bytes)},
      {"longest_context", plan.longest_context},
      {"split", main.split.name},
      {"step", step_json(main.step)},
      {"gate_share", main.gate_share},
      {"prompt_seconds", main.prompt_s},
      {"tokens_per_second", main.step.total() > 0 ? 1e3 * static_cast<double>(input.batch) / main.step.total() : 0},
      {"gates", {{"count", main.gates}, {"bytes_to_each_peer", whole(main.gate_bytes)}}},
      {"links", links},
      {"splits", splits_json(plan)},
      {"rank_counts", rank_counts_json(plan)},
      {"verdict", plan.verdict}};
  if (plan.drafter) object["drafter"] = drafter_json(*plan.drafter);
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace coprime
