#include "sim/reshard_cost.h"

#include <gtest/gtest.h>

namespace coprime::sim {
namespace {

using attention::KvMove;

TEST(ReshardCost, of_one_move_is_the_slowest_link_on_its_way) {
  Chip chip = ahbm_chip();
  chip.ipcq.pe.gb_s = 64, chip.ipcq.cube.gb_s = 128, chip.ipcq.sip.gb_s = 32;
  // SIP 0 to SIP 3 is one step down the ring; CUBE 0 to 9 is 3 hops; PE 0 to 6 is 3 hops.
  const KvMove move{0, 1000, {0, 0, 0}, {3, 9, 6}};
  const ReshardCost cost = reshard_cost(chip, std::vector{move}, 128);
  EXPECT_EQ(cost.bytes, 1000 * 2 * 128 * 2);
  EXPECT_EQ(cost.byte_hops, (std::array<int64_t, 3>{3 * cost.bytes, 3 * cost.bytes, cost.bytes}));
  EXPECT_EQ(cost.at_least, 512'000 / 32 * 1000);
  EXPECT_EQ(cost.by, "links between SIPs");
}

TEST(ReshardCost, adds_up_what_shares_a_link_or_a_port) {
  const Chip chip = ahbm_chip();
  // Both come to CUBE 2 over the link from CUBE 1.
  const std::vector<KvMove> moves = {{0, 100, {0, 0, 5}, {0, 2, 5}}, {0, 100, {0, 1, 4}, {0, 2, 4}}};
  const ReshardCost cost = reshard_cost(chip, moves, 128);
  EXPECT_EQ(cost.at_least, 2 * 51'200u * 1000 / 128);
  EXPECT_EQ(cost.by, "links between CUBEs");
  EXPECT_EQ(reshard_cost(chip, {}, 128).at_least, 0u);
}

// Whole heads on the CUBEs of SIP 0 to groups on four SIPs: SIP 0's two neighbours on the ring, and the one opposite
// (which is reached upwards), take two heads each.
TEST(ReshardCost, from_short_to_long_is_bound_by_the_way_out_of_the_first_sip) {
  const Chip chip = ahbm_chip();
  const int64_t tokens = 64 << 10;
  const auto moves = attention::kv_moves(attention::short_layout({4, 4}, 4, tokens, 1, 8),
                                         attention::long_layout({4, 4}, 4, tokens, 8, 8), 8, tokens);
  const ReshardCost cost = reshard_cost(chip, moves, 128);
  EXPECT_EQ(cost.by, "links between SIPs");
  EXPECT_EQ(cost.at_least, static_cast<Tick>(4 * tokens * 512) * 1000 / 64);
  EXPECT_EQ(cost.byte_hops[2], (4 + 2 * 2) * tokens * 512);
}

}  // namespace
}  // namespace coprime::sim
