#include "tools/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "geometry/drafter.h"
#include "tools/ranks_report.h"

namespace coprime {
namespace {

constexpr size_t kMostProblems = 20;  // that are shown as text

std::string_view operation_name(Operation op) {
  switch (op) {
    case Operation::kRows:
      return "rows";
    case Operation::kColumns:
      return "columns";
    case Operation::kSections:
      return "sections";
    case Operation::kReplicate:
      break;
  }
  return "as it is";
}

std::string sizes_of(const CheckedRule& rule) {
  if (rule.op == Operation::kReplicate) return "";
  if (rule.stock_size == rule.padded_size) return fmt::format("{}", rule.stock_size);
  return fmt::format("{} -> {}{}", rule.stock_size, rule.padded_size, rule.at_run_time ? " at run time" : "");
}

std::string count_of(const CheckedRule& rule) {
  return rule.found == rule.expected ? fmt::format("{}", rule.found)
                                     : fmt::format("{} of {}", rule.found, rule.expected);
}

std::string text_of(const HeaderCheck& check, std::string_view subject, int pad_for) {
  std::string text;
  for (const CheckedRule& rule : check.rules) {
    const std::string name = rule.part.empty() || rule.part == "drafter" ? rule.name : rule.part + " " + rule.name;
    text += fmt::format("  {:<28} {:<30} {:>9}  {:<9} {:<30} {:>4} of {:<4} {}\n", name, rule.format, count_of(rule),
                        operation_name(rule.op), sizes_of(rule), rule.padded, rule.tensors,
                        rule.verified ? "verified" : "");
  }
  for (const auto& [family, count] : check.unused)
    text += fmt::format("  {:<28} {:<30} {:>9}\n", family, "not cut", count);
  text += fmt::format("{}: {} of {} tensors are padded for {} ranks; {} that must not be are not\n", subject,
                      check.padded, check.tensors, pad_for, check.denied);
  for (size_t i = 0; i < std::min(kMostProblems, check.problems.size()); ++i)
    text += "  wrong: " + check.problems[i] + "\n";
  if (check.problems.size() > kMostProblems) {
    text += fmt::format("  and {} more; --json lists all\n", check.problems.size() - kMostProblems);
  }
  return text;
}

nlohmann::ordered_json json_of(const HeaderCheck& check) {
  nlohmann::ordered_json rules = nlohmann::ordered_json::array();
  for (const CheckedRule& rule : check.rules) {
    rules.push_back({{"part", rule.part},
                     {"rule", rule.name},
                     {"format", rule.format},
                     {"operation", operation_name(rule.op)},
                     {"found", rule.found},
                     {"expected", rule.expected},
                     {"tensors", rule.tensors},
                     {"padded_tensors", rule.padded},
                     {"size", rule.stock_size},
                     {"padded_size", rule.padded_size},
                     {"at_run_time", rule.at_run_time},
                     {"verified", rule.verified}});
  }
  return {{"tensors", check.tensors},   {"padded", check.padded}, {"denied", check.denied},
          {"rules", std::move(rules)},  {"unused", check.unused}, {"unmatched", check.unmatched},
          {"problems", check.problems}, {"holds", check.holds()}};
}

}  // namespace

CheckResult check_model(const CheckOptions& options) {
  CheckResult result{ShardPlan(read_model_shape(options.model), options.plan), {}, std::nullopt, std::nullopt};
  const ShardPlan& plan = result.plan;
  result.model = check_headers(Checkpoint::open(options.model), plan, options.tensors);
  if (options.drafter.empty()) return result;
  const ModelShape drafter = read_drafter_shape(options.drafter);
  const int64_t kv_elements = int64_t{plan.padded().kv_heads} * plan.kv_copies() * plan.shape().head_dim;
  const int pad_for = plan.options().pad_for;
  result.drafter_counts = pad_drafter(drafter, kv_elements, pad_for, drafter.mlp_unit);
  result.drafter = check_drafter_headers(Checkpoint::open(options.drafter), ShardPlan(drafter, {.ranks = pad_for}),
                                         *result.drafter_counts);
  return result;
}

std::string check_text(const CheckResult& result) {
  const int pad_for = result.plan.options().pad_for;
  std::string text = text_of(result.model, "model", pad_for);
  if (result.drafter) text += text_of(*result.drafter, "drafter", pad_for);
  return text;
}

std::string check_json(const CheckResult& result) {
  nlohmann::ordered_json json = {{"ranks", result.plan.ranks()},
                                 {"pad_for", result.plan.options().pad_for},
                                 {"padded_counts", counts_json(result.plan.padded())},
                                 {"model", json_of(result.model)}};
  if (result.drafter) {
    json["drafter"] = json_of(*result.drafter);
    json["drafter"]["padded_counts"] = counts_json(*result.drafter_counts);
  }
  json["holds"] = result.holds();
  return json.dump();
}

}  // namespace coprime
