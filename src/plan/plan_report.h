// A plan for people (a table of 100 columns), for programs (JSON, keys in docs/planning.md), and as a picture.
#pragma once

#include <string>

#include "plan/plan.h"

namespace coprime {

std::string plan_text(const Plan& plan);
std::string plan_json(const Plan& plan);

// SVG: query and KV heads, linear heads, the MLP and the vocabulary by rank; dummies hatched.
std::string plan_picture(const Plan& plan);

// "4.25 GB", "812 MB", "16 KiB" as people count them: powers of ten but for exact KiB.
std::string size_text(double bytes);

}  // namespace coprime
