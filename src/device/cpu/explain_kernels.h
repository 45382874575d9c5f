// Which kernels a CPU device takes for a model, and why not the others: what `plan --kernels` prints. Pure but for
// asking the CPU what it has.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "device/cpu/kernel_table.h"

namespace coprime {

struct KernelChoice {
  std::string operation;  // "linear", "attention", ...
  std::string format;     // of the weights, pages or states that it reads
  std::string chosen;     // the row's name
  std::vector<KernelVerdict> others;
};

// A CPU as far as kernels care.
struct CpuKind {
  Isa isa = Isa::kReference;
  CpuFeatures features;
};
CpuKind this_cpu(Isa limit);

// One choice for each type of weights (any of the float and block types), for the cache's type, and for what reads
// floats only; `options` as make_cpu_device() takes them.
std::vector<KernelChoice> explain_kernels(const CpuKind& cpu, const CpuOptions& options, std::span<const DType> weights,
                                          DType kv);

}  // namespace coprime
