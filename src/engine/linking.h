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

// names[a][b]: what joins ranks a and b, as rank a names it.
using LinkNames = std::vector<std::vector<std::string>>;
struct MadeLinks {
  LinkNames names;
  std::vector<std::string> notes;  // lines for who asks: why no RDMA, over which devices
};

// Reports pairs that fell back, from shared memory or from RDMA. Error(kLink) when a rank fails or the wish cannot be
// granted; then the world is told to stop.
MadeLinks make_links(World& world, std::span<const RankFacts> facts, const LinkOptions& options);

// "no RDMA on ranks 0, 2: there is no device": one line for each reason.
std::vector<std::string> no_verbs_notes(std::span<const RankFacts> facts);
// "ranks 0 and 2 use tcp, not verbs: the warm-up failed": one line for each pair that fell back; the lower rank's
// words.
std::vector<std::string> fallback_notes(std::span<const LinkReport> reports);

// "shm 0-1, 0-2; tcp 1-2": one pair for each two ranks, by kind.
std::string links_text(const LinkNames& names);

}  // namespace coprime
