// A whole launch on the host mesh.
#pragma once

#include <optional>
#include <vector>

#include "host_mesh/host_mesh.h"
#include "tl/program.h"

namespace coprime::host_mesh {

// inputs: null for no data (and no outputs). seed: of the scheduler; none: a thread a PE. Error(kUsage): what cannot be
// placed, a deadlock, what kernels throw.
std::vector<tl::HeadOutput> run(const tl::Places& places, const QueueSizes& sizes, const tl::LaunchSpec& spec,
                                const tl::Inputs* inputs, std::optional<uint64_t> seed);

// The same for a launch that has been planned.
std::vector<tl::HeadOutput> run(const tl::Places& places, const QueueSizes& sizes, const tl::Launch& launch,
                                const tl::Inputs* inputs, std::optional<uint64_t> seed);

}  // namespace coprime::host_mesh
