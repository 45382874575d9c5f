// One function a command. Each throws Error, which main() prints as one line.
#pragma once

#include "cli/settings.h"

namespace coprime {

void run_generate(const WorldSettings& world, const GenerateSettings& settings);
void run_logits(const WorldSettings& world, const LogitsSettings& settings);
void run_link(const LinkSettings& settings);

}  // namespace coprime
