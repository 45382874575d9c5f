// The front's half of making links: who shares memory, which link joins each pair, where ranks find each other. Run
// when a world starts, and again with a higher epoch after a step has failed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/links.h"
#include "engine/world.h"

namespace coprime {

struct LinkOptions {
  Link wish = Link::kAuto;
  uint32_t epoch = 1;
};

// names[a][b]: what joins ranks a and b, as rank a names it. Reports pairs that fell back from shared memory.
using LinkNames = std::vector<std::vector<std::string>>;

// Error(kLink) when a rank fails or the wish cannot be granted; then the world is told to stop.
LinkNames make_links(World& world, std::span<const RankFacts> facts, const LinkOptions& options);

// "shm 0-1, 0-2; tcp 1-2": one pair for each two ranks, by kind.
std::string links_text(const LinkNames& names);

}  // namespace coprime
