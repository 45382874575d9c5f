// coprime plan: what a split holds, moves and costs, from a config alone, or from headers where the weights are there.
#include "plan/plan.h"

#include <filesystem>
#include <span>

#include "base/error.h"
#include "base/output_file.h"
#include "cli/byte_count.h"
#include "cli/commands.h"
#include "cli/outputs.h"
#include "cli/plan_kernels.h"
#include "plan/machine_file.h"
#include "plan/plan_report.h"
#include "tensor/sequence.h"
#include "tools/plan_model.h"

namespace coprime {
namespace {

constexpr int64_t kMaxMemory = int64_t{1} << 50;

Machine machine_of(const std::string& name) {
  if (const Machine* const typical = find_machine(name)) return *typical;
  std::error_code ignored;
  if (!std::filesystem::exists(name, ignored)) {
    std::string known;
    for (const Machine& machine : typical_machines()) known += (known.empty() ? "" : ", ") + machine.name;
    fail(ErrorKind::kUsage, "--machine {}: no such file, and none of the typical machines {}", name, known);
  }
  return read_machine(name);
}

// Files add to each other, and to one typical machine; hosts of whose speed none tells are typical ones.
Machine machine_of(const std::vector<std::string>& names) {
  if (names.empty()) return *find_machine("desktop");
  const std::string* typical = nullptr;
  for (const std::string& name : names) {
    if (find_machine(name) == nullptr) continue;
    if (typical != nullptr) {
      fail(ErrorKind::kUsage,
           "--machine {} and --machine {}: files add to each other, names of typical machines do not: give one",
           *typical, name);
    }
    typical = &name;
  }
  Machine machine = machine_of(names[0]);
  for (const std::string& name : std::span(names).subspan(1)) machine = merge_machines(machine, machine_of(name));
  bool known = !machine.hosts.empty();
  for (const MachineHost& host : machine.hosts) known = known && !host.read.empty();
  return known ? machine : merge_machines(*find_machine("desktop"), std::move(machine));
}

// What an element of cached keys and values takes, with its share of the scales of a head's row.
double kv_bytes(const ModelNumbers& model, DType type) {
  const int64_t row = model.latent() ? model.kv_rank + model.rope_dim : model.head_dim;
  const KvView view{nullptr, type, 1, static_cast<int>(row)};
  return static_cast<double>(view.page_bytes()) / static_cast<double>(2 * view.elements());
}

}  // namespace

void run_plan(const PlanSettings& settings) {
  if (!settings.svg.empty()) {
    std::vector<std::filesystem::path> inputs = {settings.model, settings.drafter};
    for (const std::string& machine : settings.machine) {
      if (find_machine(machine) == nullptr) inputs.emplace_back(machine);
    }
    check_output_flag("--svg", settings.svg, inputs);
  }
  PlanModel model = read_plan_model(settings.model, settings.format);
  const int pad_for = settings.pad_for == 0 ? settings.ranks : settings.pad_for;
  PlanInput input{.model = model.numbers,
                  .format = model.format,
                  .format_source = model.format_source,
                  .machine = machine_of(settings.machine),
                  .ranks = settings.ranks,
                  .pad_for = pad_for,
                  .context = settings.context,
                  .batch = settings.batch,
                  .memory_bytes = settings.memory.empty() ? 0 : parse_bytes("--memory", settings.memory, kMaxMemory),
                  .exact = settings.exact,
                  .kv_bytes = kv_bytes(model.numbers, kv_type_of(settings.kv))};
  input.weights = plan_weights(model, {.ranks = settings.ranks, .pad_for = pad_for, .exact = settings.exact});
  if (!settings.drafter.empty()) {
    const PlanModel drafter = read_plan_model(settings.drafter, "");
    input.drafter = DrafterInput{drafter.numbers, drafter.format};
  }
  const Plan plan = make_plan(std::move(input));
  if (!settings.svg.empty()) write_output(settings.svg, plan_picture(plan));
  std::string report = settings.json ? plan_json(plan) : plan_text(plan);
  if (settings.kernels)
    report = settings.json ? with_kernels(report, settings, model.types) : report + kernels_text(settings, model.types);
  print(settings.json ? report + "\n" : report);
}

}  // namespace coprime
