#include "attention/kv_reshard.h"

#include <algorithm>

namespace coprime::attention {

KvHome KvLayout::home(int head, int rank) const {
  const int pe = placement.pe_of(rank);
  if (heads_per_cube > 0) {
    const int cube = cube_of_head(head, heads_per_cube);
    return {cube / sip.size(), cube % sip.size(), pe};
  }
  const int group = head % (groups.count() * sips);  // of more heads than groups, one launch after another
  return {group / groups.count(), groups.cube(group % groups.count(), placement.cube_of(rank)), pe};
}

KvLayout long_layout(Mesh sip, int sips, int64_t largest_context, int cubes, int pes) {
  return {sip, sips, 0, cube_groups(sip, cubes), kv_placement(largest_context, cubes, pes)};
}

KvLayout short_layout(Mesh sip, int sips, int64_t largest_context, int heads_per_cube, int pes) {
  return {sip, sips, heads_per_cube, {}, kv_placement(largest_context, 1, pes)};
}

std::vector<KvMove> kv_moves(const KvLayout& before, const KvLayout& after, int heads, int64_t tokens) {
  std::vector<KvMove> moves;
  for (int head = 0; head < heads; ++head) {
    for (int64_t token = 0; token < tokens;) {
      const int source = before.placement.rank(token), target = after.placement.rank(token);
      const int64_t end = std::min({before.placement.begin(source + 1), after.placement.begin(target + 1), tokens});
      const KvHome from = before.home(head, source), to = after.home(head, target);
      if (from != to) moves.push_back({head, end - token, from, to});
      token = end;
    }
  }
  return moves;
}

}  // namespace coprime::attention
