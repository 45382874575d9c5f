// What the flags of `coprime sim` say, as the chip and the run that they mean.
#pragma once

#include "cli/settings.h"
#include "sim/run.h"

namespace coprime {

// Error(kModel) for a chip that cannot be read, Error(kUsage) for a value that none can have.
sim::Chip sim_chip(const SimSettings& settings);
sim::RunSpec sim_spec(const SimSettings& settings);

// "decode opt3: 1048576 tokens, 8 KV heads, C = 8, P = 8, tiles of 64"
std::string sim_title(const SimSettings& settings, const sim::RunSpec& spec);

}  // namespace coprime
