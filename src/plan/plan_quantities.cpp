#include "plan/plan_quantities.h"

#include <fmt/format.h>

namespace coprime {
namespace {

std::string divides(int64_t ranks, int64_t stock) {
  return stock % ranks == 0 ? fmt::format("{} divides {}", ranks, stock)
                            : fmt::format("{} does not divide {}", ranks, stock);
}

// An axis is shared out as ceil(units / ranks) whole units: told where the ranks do not divide the padded one.
std::string shared_out(int64_t units, int64_t ranks, std::string_view unit) {
  return fmt::format("ceil({}/{}) = {} {}", units, ranks, (units + ranks - 1) / ranks, unit);
}

class QuantityList {
 public:
  explicit QuantityList(const Plan& plan) : plan_(plan) {}

  void add(std::string_view key, std::string_view title, int64_t PaddedCounts::*count, int64_t RankLoad::*load,
           std::string reason, int64_t times = 1) {
    Quantity quantity{.key = key,
                      .title = title,
                      .stock = plan_.stock.*count,
                      .padded = plan_.padded.*count,
                      .reason = std::move(reason)};
    if (quantity.stock == 0) return;
    for (const RankLoad& rank : plan_.main().split.held) quantity.real.push_back(rank.*load * times);
    for (const RankLoad& rank : plan_.main().split.padded) quantity.held.push_back(rank.*load * times);
    list_.push_back(std::move(quantity));
  }
  std::vector<Quantity> take() { return std::move(list_); }

 private:
  const Plan& plan_;
  std::vector<Quantity> list_;
};

}  // namespace

std::vector<Quantity> plan_quantities(const Plan& plan) {
  const ModelNumbers& m = plan.input.model;
  const int64_t ranks = plan.input.pad_for, unit = plan.input.format.mlp_unit;
  QuantityList list(plan);
  const int64_t run = plan.input.ranks;
  const bool copied = copies_kv_heads(plan.padded, run);
  const auto heads = [&](int64_t stock, int64_t padded) {
    return padded % run == 0 ? divides(ranks, stock) : shared_out(padded, run, "whole heads");
  };
  const auto columns = [&](int64_t padded, int64_t of, const std::string& reason) {
    return padded % (of * run) == 0 ? reason : shared_out(padded / of, run, fmt::format("units of {}", of));
  };
  if (m.latent()) {
    list.add("q_heads", "attention heads", &PaddedCounts::q_heads, &RankLoad::q_heads,
             heads(m.q_heads, plan.padded.q_heads) + "; one latent cache, on every rank");
  } else {
    const std::string group = m.q_heads % m.kv_heads == 0 ? fmt::format("{} for each KV head, as trained", m.gqa())
                                                          : fmt::format("no multiple of the KV heads");
    list.add("q_heads", "query heads", &PaddedCounts::q_heads, &RankLoad::q_heads, group);
    list.add("kv_heads", "KV heads", &PaddedCounts::kv_heads, &RankLoad::kv_heads,
             copied ? fmt::format("{} ranks copy {} heads", run, m.kv_heads) : heads(m.kv_heads, plan.padded.kv_heads));
  }
  if (m.linear_layers > 0) {
    const int64_t ratio = m.linear.value_heads / m.linear.key_heads;
    list.add("linear_key_heads", "linear key heads", &PaddedCounts::key_heads, &RankLoad::key_heads,
             heads(m.linear.key_heads, plan.padded.key_heads));
    list.add("linear_value_heads", "linear value heads", &PaddedCounts::value_heads, &RankLoad::key_heads,
             fmt::format("{} for each key head, as trained", ratio), ratio);
  }
  const std::string widths = fmt::format("a multiple of {} x {} ({})", ranks, unit, plan.input.format.title);
  if (m.mlp_layers > 0)
    list.add("mlp_width", "MLP width", &PaddedCounts::width, &RankLoad::width,
             columns(plan.padded.width, unit, widths));
  list.add("expert_width", "expert width", &PaddedCounts::expert_width, &RankLoad::expert_width,
           columns(plan.padded.expert_width, unit, widths));
  list.add("shared_expert_width", "shared expert", &PaddedCounts::shared_width, &RankLoad::shared_width,
           columns(plan.padded.shared_width, unit, widths));
  list.add("vocab", "vocabulary", &PaddedCounts::vocab, &RankLoad::vocab,
           columns(plan.padded.vocab, kVocabUnit, fmt::format("a multiple of {} x {}", ranks, kVocabUnit)));
  return list.take();
}

}  // namespace coprime
