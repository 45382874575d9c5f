// `coprime plan --kernels`: which kernel this CPU takes for each operation of a model, and why not the others.
#pragma once

#include <span>
#include <string>

#include "cli/settings.h"

namespace coprime {

// `types`: of the model's matrices; empty: coprime has no kernels for them.
std::string kernels_text(const PlanSettings& settings, std::span<const DType> types);
// The JSON object `plan` with "kernels" added.
std::string with_kernels(const std::string& plan, const PlanSettings& settings, std::span<const DType> types);

}  // namespace coprime
