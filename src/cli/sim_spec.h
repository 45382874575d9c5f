// What the flags of `coprime sim` say, as the chip and the run that they mean.
#pragma once

#include <functional>

#include "cli/settings.h"
#include "sim/run.h"

namespace coprime {

// Error(kModel) for a chip that cannot be read, Error(kUsage) for a value that none can have.
sim::Chip sim_chip(const SimSettings& settings);
sim::RunSpec sim_spec(const SimSettings& settings);

// Error(kUsage) for a flag that was given and that none of the kernels has a use for, but for `others`.
void check_given(const SimSettings& settings, const std::vector<tl::Kernel>& kernels,
                 const std::set<std::string>& others = {});

// "decode opt3: 1048576 tokens, 8 KV heads, C = 8, P = 8, tiles of 64"
std::string sim_title(const SimSettings& settings, const sim::RunSpec& spec);

// Before a simulation: a warning on standard error where its PEs do not form a mesh that a tree is sure to suit.
void warn_of_shape(const sim::RunSpec& spec);

// run() calls sim::run or several. What head-packing is refused for is its point: the error then says so, and which
// command runs.
void explain_head_packing(const sim::RunSpec& spec, const std::function<void()>& run);

}  // namespace coprime
