// What follows from a plan's numbers, in words. Internal to plan.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace coprime {

std::vector<std::string> verdict_of(const Plan& plan);

}  // namespace coprime
