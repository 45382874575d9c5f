// The front's half of making links: who shares memory, which link joins each pair, where ranks find each other. Run
// when a world starts, and again with a higher epoch after a step has failed; with each trial where links are measured.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/links.h"
#include "engine/world.h"

namespace coprime {

using RankPair = std::pair<int, int>;  // the lower rank first

struct LinkOptions {
  Link wish = Link::kAuto;
  uint32_t epoch = 1;
  World::Patience patience;
  uint32_t members = World::kAllRanks;  // a bit for each rank that is to be joined with the others of them
  std::set<RankPair> without_verbs;     // pairs between which RDMA did not come about: with kAuto it is not tried again
};

// names[a][b]: what joins ranks a and b, as rank a names it; nothing of ranks that are no members.
using LinkNames = std::vector<std::vector<std::string>>;
struct MadeLinks {
  LinkNames names;
  std::vector<std::string> notes;  // lines for who asks: why no RDMA, over which devices
  std::set<RankPair> fallbacks;    // pairs that use TCP in place of RDMA, as of now
};

std::vector<RankPlace> places_of(std::span<const RankFacts> facts);

// Reports pairs that fell back, from shared memory or from RDMA. Error when a rank fails or the wish cannot be granted.
MadeLinks make_links(World& world, std::span<const RankFacts> facts, const LinkOptions& options);

// "no RDMA on ranks 0, 2: there is no device": one line for each reason.
std::vector<std::string> no_verbs_notes(std::span<const RankFacts> facts);
// "ranks 0 and 2 use tcp, not verbs: the warm-up failed": one line for each pair that fell back; the lower rank's
// words. By rank; those of ranks that are no members say nothing.
std::vector<std::string> fallback_notes(std::span<const LinkReport> reports);

// What each rank is told about meeting the others, in a world of its own id. Of `all` comes what is alike for them.
std::vector<LinkStart> link_starts(const World& world, const RemoteOptions& remote, const LinkStart& all);

// "shm 0-1, 0-2; tcp 1-2": one pair for each two ranks, by kind.
std::string links_text(const LinkNames& names);

}  // namespace coprime
