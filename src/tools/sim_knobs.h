// Which of a run's quantities each kernel has a use for, by the names that flags and sweeps give them (context, cubes,
// kv-per-cube, ...): what it has none for is refused rather than ignored.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tl/program.h"

namespace coprime {

std::vector<std::string> knobs_of(tl::Kernel kernel);

// "topology" is what takes within or across.
bool takes(tl::Kernel kernel, std::string_view knob);

// Error(kUsage) unless one of the kernels takes it: "prefill has no use for --variant: it takes --context, ...".
// dashes: how people write it, "--" or nothing.
void check_knob(const std::vector<tl::Kernel>& kernels, std::string_view knob, std::string_view dashes);

}  // namespace coprime
