#include "cli/plan_kernels.h"

#include <nlohmann/json.hpp>

#include "device/cpu/explain_kernels.h"

namespace coprime {
namespace {

std::vector<KernelChoice> choices_of(const PlanSettings& settings, std::span<const DType> types) {
  return explain_kernels(this_cpu(isa_of(settings.isa)), {.math = math_of(settings.math), .exact = settings.exact},
                         types, kv_type_of(settings.kv));
}

}  // namespace

std::string kernels_text(const PlanSettings& settings, std::span<const DType> types) {
  std::string text = fmt::format("\nkernels of this CPU, --math {}\n", settings.math);
  if (types.empty()) text += "  coprime has no products with weights of this format\n";
  for (const KernelChoice& choice : choices_of(settings, types)) {
    text += fmt::format("  {:<24}{:<10}{}\n", choice.operation, choice.format, choice.chosen);
    for (const KernelVerdict& other : choice.others)
      text += fmt::format("  {:<34}  not {}: {}\n", "", other.name, other.reason);
  }
  return text;
}

std::string with_kernels(const std::string& plan, const PlanSettings& settings, std::span<const DType> types) {
  auto json = nlohmann::ordered_json::parse(plan);
  auto& rows = json["kernels"] = nlohmann::ordered_json::array();
  for (const KernelChoice& choice : choices_of(settings, types)) {
    nlohmann::ordered_json row = {{"operation", choice.operation},
                                  {"format", choice.format},
                                  {"chosen", choice.chosen},
                                  {"others", nlohmann::ordered_json::array()}};
    for (const KernelVerdict& other : choice.others)
      row["others"].push_back({{"name", other.name}, {"reason", other.reason}});
    rows.push_back(std::move(row));
  }
  return json.dump();
}

}  // namespace coprime
