#include "cli/report.h"

#include <nlohmann/json.hpp>

#include "tools/ranks_report.h"

namespace coprime {
namespace {

std::string count_text(const char* name, int64_t real, int64_t padded) {
  return real == padded ? fmt::format("{} {}", name, real) : fmt::format("{} {} of {}", name, real, padded);
}

std::string heads_text(const ShardPlan& plan) {
  const Counts stock = plan.stock(), padded = plan.padded();
  std::string text =
      count_text("query", stock.q_heads, padded.q_heads) + ", " + count_text("KV", stock.kv_heads, padded.kv_heads);
  if (plan.kv_replicated()) text += " (copied)";
  if (stock.linear_key_heads > 0) {
    text += ", " + count_text("linear key", stock.linear_key_heads, padded.linear_key_heads);
    text += ", " + count_text("linear value", stock.linear_value_heads, padded.linear_value_heads);
  }
  return text;
}

const char* finish_text(Finish finish) {
  return finish == Finish::kStop ? "stop" : finish == Finish::kLength ? "length" : "cancelled";
}

}  // namespace

double GenerateReport::tokens_per_second() const {
  return generation.decode_us == 0
             ? 0
             : static_cast<double>(generation.decode_steps) * 1e6 / static_cast<double>(generation.decode_us);
}

double GenerateReport::gate_share() const {
  const WorldStatistics& statistics = front.statistics();
  return statistics.compute_us == 0
             ? 0
             : static_cast<double>(statistics.gate_us) / static_cast<double>(statistics.compute_us);
}

std::string GenerateReport::table() const {
  const ShardPlan& plan = front.plan();
  const Counts stock = plan.stock(), padded = plan.padded();
  std::string table = fmt::format("\nmodel    {}, {} layers, on {} rank{}\n", plan.shape().architecture_name,
                                  plan.shape().layers, plan.ranks(), plan.ranks() == 1 ? "" : "s");
  if (plan.ranks() > 1) table += fmt::format("links    {}\n", links_text(front.links()));
  for (const std::string& note : front.link_notes()) table += fmt::format("         {}\n", note);
  table += fmt::format("heads    {} (real of padded)\n", heads_text(plan));
  table += fmt::format("widths   {}, {}\n", count_text("MLP", stock.intermediate, padded.intermediate),
                       count_text("vocabulary", stock.vocab, padded.vocab));
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    const Counts local = plan.local(rank);
    table += fmt::format("rank {:<3} {} query, {} KV heads; {}\n", rank, local.q_heads, local.kv_heads,
                         rank_text(front.ranks()[static_cast<size_t>(rank)]));
  }
  table +=
      fmt::format("tokens   {} in, {} out; first after {:.1f} ms, then {:.0f} tokens/s; ready after {:.0f} ms\n",
                  request.prompt.size(), generation.ids.size(), static_cast<double>(generation.first_token_us) / 1e3,
                  tokens_per_second(), static_cast<double>(start_us) / 1e3);
  table += fmt::format("gates    {} a step, {:.1f}% of the ranks' time\n", front.schedule().size(), 100 * gate_share());
  table += "\n" + front.ranks()[0].tally;
  return table;
}

std::string GenerateReport::json() const {
  using nlohmann::json;
  const json object{{"text", text},
                    {"ids", generation.ids},
                    {"prompt_tokens", request.prompt.size()},
                    {"completion_tokens", generation.ids.size()},
                    {"finish_reason", finish_text(generation.finish)},
                    {"seed", request.sampling.seed},
                    {"links", front.links()},
                    {"link_notes", front.link_notes()},
                    {"stock", counts_json(front.plan().stock())},
                    {"padded", counts_json(front.plan().padded())},
                    {"ranks", ranks_json(front.ranks())},
                    {"unused_tensors", front.ranks()[0].unused},
                    {"start_ms", static_cast<double>(start_us) / 1e3},
                    {"first_token_ms", static_cast<double>(generation.first_token_us) / 1e3},
                    {"decode_tok_s", tokens_per_second()},
                    {"gate_share", gate_share()}};
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace coprime
