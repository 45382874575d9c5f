#include "attention/kv_reshard.h"

#include <gtest/gtest.h>

#include <numeric>

namespace coprime::attention {
namespace {

constexpr Mesh kSip{4, 4};

int64_t moved(const std::vector<KvMove>& moves) {
  return std::accumulate(moves.begin(), moves.end(), int64_t{0},
                         [](int64_t sum, const KvMove& move) { return sum + move.tokens; });
}

// Token by token.
int64_t counted(const KvLayout& before, const KvLayout& after, int heads, int64_t tokens) {
  int64_t count = 0;
  for (int head = 0; head < heads; ++head) {
    for (int64_t token = 0; token < tokens; ++token)
      count += before.home(head, before.placement.rank(token)) != after.home(head, after.placement.rank(token));
  }
  return count;
}

TEST(KvReshard, moves_every_token_whose_place_changes_once) {
  for (const int64_t tokens : {1, 7, 640, 1000}) {
    for (const int owned : {1, 2, 8}) {
      const KvLayout before = short_layout(kSip, 4, 1000, owned, 8), after = long_layout(kSip, 4, 1000, 8, 8);
      for (const auto& [a, b] : {std::pair(before, after), std::pair(after, before)}) {
        const auto moves = kv_moves(a, b, 8, tokens);
        EXPECT_EQ(moved(moves), counted(a, b, 8, tokens)) << tokens << " " << owned;
        for (const KvMove& move : moves) EXPECT_NE(move.from, move.to);
      }
    }
  }
}

TEST(KvReshard, of_the_same_layout_moves_nothing) {
  const KvLayout layout = long_layout(kSip, 4, 4096, 8, 8);
  EXPECT_TRUE(kv_moves(layout, layout, 8, 4096).empty());
}

// Eight heads on the CUBEs of SIP 0, one each, become two on each of four SIPs: six leave theirs whole. Head 0 keeps
// what CUBE 0 PE 0 has of it before and after; head 1 goes from CUBE 1 to the group of CUBEs 8 to 15.
TEST(KvReshard, from_whole_heads_to_groups_of_eight_cubes) {
  const auto moves = kv_moves(short_layout(kSip, 4, 6400, 1, 8), long_layout(kSip, 4, 6400, 8, 8), 8, 6400);
  int64_t to_other_sips = 0;
  for (const KvMove& move : moves) to_other_sips += move.from.sip == move.to.sip ? 0 : move.tokens;
  EXPECT_EQ(to_other_sips, 6 * 6400);
  EXPECT_EQ(moved(moves), 8 * 6400 - 100);
}

TEST(KvReshard, more_heads_than_groups_lie_on_the_same_cubes) {
  const KvLayout layout = long_layout(kSip, 1, 64, 8, 8);
  EXPECT_EQ(layout.home(0, 5), layout.home(2, 5));
  EXPECT_NE(layout.home(0, 5), layout.home(1, 5));
}

}  // namespace
}  // namespace coprime::attention
