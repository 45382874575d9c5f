// A rank's part in measuring the links of a world; the front's is in link_world.h. For each trial in which it is a
// member it makes fresh links with the others, takes part, and reports. A trial that fails ends neither the rank nor
// the world.
#pragma once

#include <memory>

#include "engine/front_line.h"

namespace coprime {

// A MeasuringService (engine/rank.h).
void serve_link_trials(FrontLine& front, const Message& start, std::shared_ptr<const ProgressPage> progress,
                       const RankPlacement& placement);

}  // namespace coprime
