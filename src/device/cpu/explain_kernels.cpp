#include "device/cpu/explain_kernels.h"

#include "device/cpu/kernels.h"
#include "device/cpu/split_linear.h"
#include "device/quant/fp8_kernels.h"
#include "device/quant/quant_kernels.h"
#include "tensor/dtype.h"

namespace coprime {
namespace {

KernelChoice choice(std::string operation, DType format, std::vector<KernelVerdict> verdicts) {
  KernelChoice made{std::move(operation), std::string(dtype_name(format)), "reference", {}};
  for (KernelVerdict& each : verdicts) {
    if (each.reason.empty()) {
      made.chosen = std::move(each.name);
    } else {
      made.others.push_back(std::move(each));
    }
  }
  return made;
}

// Rows in the order in which they are asked; once one is chosen, the later ones lose to it.
void append(std::vector<KernelVerdict>& verdicts, std::vector<KernelVerdict> later) {
  std::string chosen;
  for (const KernelVerdict& each : verdicts) {
    if (each.reason.empty()) chosen = each.name;
  }
  for (KernelVerdict& each : later) {
    if (!chosen.empty() && each.reason.empty()) each.reason = chosen + " is better";
    verdicts.push_back(std::move(each));
  }
}

KernelChoice explain_linear(const CpuKind& cpu, const CpuOptions& options, DType type) {
  std::vector<KernelVerdict> verdicts;
  if (is_block(type)) {
    verdicts = type == DType::kFp8 ? judge_kernels(fp8_kernels(), {cpu.isa, type})
                                   : judge_quant_kernels(quant_kernels(), {cpu.isa, cpu.features, type});
    KernelChoice made = choice("linear", type, std::move(verdicts));
    if (options.math == MathMode::kF32) made.chosen += ", widened to F32";
    return made;
  }
  if (type == DType::kBF16) {
    if (options.exact) {
      for (const auto& row : split_kernels())
        verdicts.push_back({row.name, "adds in an order of its own, not --exact"});
    } else {
      verdicts = judge_kernels(split_kernels(), {cpu.isa, type, cpu.features, options.math});
    }
  }
  append(verdicts, judge_kernels(linear_kernels(), {cpu.isa, type}));
  return choice("linear", type, std::move(verdicts));
}

}  // namespace

CpuKind this_cpu(Isa limit) { return {best_isa(limit), cpu_features()}; }

std::vector<KernelChoice> explain_kernels(const CpuKind& cpu, const CpuOptions& options, std::span<const DType> weights,
                                          DType kv) {
  std::vector<KernelChoice> choices;
  for (DType type : weights) choices.push_back(explain_linear(cpu, options, type));
  choices.push_back(choice("attention", kv, judge_kernels(attention_kernels(), {cpu.isa, kv})));
  choices.push_back(
      choice("norms, rotation, gates", DType::kF32, judge_kernels(row_kernels(), {cpu.isa, DType::kF32})));
  choices.push_back(choice("delta net", DType::kF32, judge_kernels(delta_net_kernels(), {cpu.isa, DType::kF32})));
  return choices;
}

}  // namespace coprime
