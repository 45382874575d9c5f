#include "attention/reduce_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <set>

#include "attention/cube_groups.h"
#include "attention/ring_order.h"
#include "base/error.h"

namespace coprime::attention {
namespace {

std::vector<Mesh> all_meshes() {
  std::vector<Mesh> meshes;
  for (int rows = 1; rows <= 4; ++rows)
    for (int columns = 1; columns <= 4; ++columns) meshes.push_back({rows, columns});
  return meshes;
}

int ceil_log2(int n) { return std::bit_width(static_cast<unsigned>(n - 1)); }

std::string label(Mesh mesh, ReduceTopology topology) {
  return std::to_string(mesh.rows) + "x" + std::to_string(mesh.columns) + " " + std::string(name_of(topology));
}

// What A3 asks of any reduction to a root, on every mesh up to 4x4.
TEST(ReduceSchedule, brings_every_place_to_the_root_once_through_one_port_a_round) {
  for (const Mesh mesh : all_meshes()) {
    for (const ReduceTopology topology : kReduceTopologies) {
      if (topology == ReduceTopology::kRing && !has_ring(mesh)) continue;
      SCOPED_TRACE(label(mesh, topology));
      const ReduceSchedule schedule = reduce_schedule(mesh, topology);
      EXPECT_EQ(schedule.messages.size(), static_cast<size_t>(mesh.size() - 1));
      std::vector<std::set<int>> holds(static_cast<size_t>(mesh.size()));
      for (int place = 0; place < mesh.size(); ++place) holds[static_cast<size_t>(place)] = {place};
      std::set<std::pair<int, int>> ports;  // (round, receiver)
      std::vector<int> last_received(static_cast<size_t>(mesh.size())), sent(static_cast<size_t>(mesh.size()));
      int last_round = 0;
      for (const ReduceMessage& message : schedule.messages) {
        const auto from = static_cast<size_t>(message.from), to = static_cast<size_t>(message.to);
        EXPECT_GE(message.round, last_round);
        last_round = message.round;
        EXPECT_TRUE(ports.insert({message.round, message.to}).second) << "two messages at " << message.to;
        EXPECT_GT(message.round, last_received[from]) << "sends before it has received all";
        EXPECT_EQ(sent[from]++, 0);
        EXPECT_EQ(sent[to], 0) << "receives after it has sent";
        EXPECT_EQ(message.hops, mesh.hops(message.from, message.to));
        if (topology != ReduceTopology::kStar) {
          EXPECT_EQ(message.hops, 1);
          EXPECT_EQ(mesh.neighbour(message.from, message.leaves), message.to);
          EXPECT_EQ(mesh.neighbour(message.to, message.arrives), message.from);
        }
        last_received[to] = message.round;
        holds[to].merge(holds[from]);
      }
      EXPECT_EQ(holds[static_cast<size_t>(schedule.root)].size(), static_cast<size_t>(mesh.size()));
      EXPECT_EQ(schedule.rounds, last_round);
      EXPECT_FALSE(schedule.part(schedule.root).send);
    }
  }
}

TEST(ReduceSchedule, of_tree_and_centre_mesh_takes_ceil_log2_rounds) {
  for (const Mesh mesh : all_meshes()) {
    for (const ReduceTopology topology : {ReduceTopology::kTree, ReduceTopology::kCentreMesh}) {
      const ReduceSchedule schedule = reduce_schedule(mesh, topology);
      EXPECT_EQ(schedule.rounds, ceil_log2(mesh.size())) << label(mesh, topology);
      EXPECT_EQ(schedule.root, mesh.centre());
    }
  }
}

TEST(ReduceSchedule, of_chain_and_star_takes_a_round_for_each_other_place_and_of_a_ring_half) {
  for (const Mesh mesh : all_meshes()) {
    EXPECT_EQ(reduce_schedule(mesh, ReduceTopology::kChain).rounds, mesh.size() - 1);
    EXPECT_EQ(reduce_schedule(mesh, ReduceTopology::kStar).rounds, mesh.size() - 1);
    if (has_ring(mesh)) {
      EXPECT_EQ(reduce_schedule(mesh, ReduceTopology::kRing).rounds, mesh.size() / 2);
    }
  }
}

TEST(ReduceSchedule, over_8_pes_is_the_tree_of_three_rounds) {
  const ReduceSchedule tree = reduce_schedule({2, 4}, ReduceTopology::kTree);
  std::vector<std::array<int, 3>> edges;
  for (const ReduceMessage& message : tree.messages) edges.push_back({message.round, message.from, message.to});
  const std::vector<std::array<int, 3>> expected = {{1, 4, 0}, {1, 5, 1}, {1, 6, 2}, {1, 7, 3},
                                                    {2, 0, 1}, {2, 3, 2}, {3, 2, 1}};
  EXPECT_EQ(edges, expected);
  EXPECT_EQ(tree.root, 1);
  const ReducePart root = tree.part(1);
  ASSERT_EQ(root.receives.size(), 3u);  // by expected depth: PE 5, then 0, then 2
  EXPECT_EQ(root.receives[0].from, 5);
  EXPECT_EQ(root.receives[1].from, 0);
  EXPECT_EQ(root.receives[2].from, 2);
  EXPECT_EQ(root.receives[2].arrives, Direction::kEast);
}

TEST(ReduceSchedule, of_a_star_over_8_pes_has_12_hop_messages) {
  int hops = 0;
  for (const ReduceMessage& message : reduce_schedule({2, 4}, ReduceTopology::kStar).messages) hops += message.hops;
  EXPECT_EQ(hops, 12);
}

TEST(ReduceSchedule, over_any_number_of_PEs_is_a_tree_of_single_hops) {
  constexpr int kRounds[] = {0, 1, 2, 2, 3, 3, 4, 3};  // of 1 to 8; ceil(log2) but for 7
  for (int pes = 1; pes <= 8; ++pes) {
    const Mesh mesh = pe_mesh(pes);
    EXPECT_EQ(mesh.size(), pes);
    const ReduceSchedule tree = reduce_schedule(mesh, ReduceTopology::kTree);
    EXPECT_EQ(tree.rounds, kRounds[pes - 1]) << pes;
    for (const ReduceMessage& message : tree.messages) EXPECT_EQ(message.hops, 1) << pes;
  }
  EXPECT_EQ(pe_mesh(6), (Mesh{2, 3}));
  EXPECT_THROW(pe_mesh(0), Error);
  EXPECT_THROW(pe_mesh(9), Error);
}

TEST(ReduceSchedule, of_two_levels_has_the_rounds_and_messages_of_A3) {
  struct Row {
    int cubes, rounds;
    int64_t triplets;
  };
  constexpr Row kRows[] = {{1, 3, 7}, {2, 4, 15}, {4, 5, 31}, {8, 6, 63}, {16, 7, 127}};
  for (const Row& row : kRows) {
    const Mesh group = cube_groups({4, 4}, row.cubes).group;
    const TwoLevelReduce reduce =
        two_level_reduce(pe_mesh(8), ReduceTopology::kTree, group, ReduceTopology::kCentreMesh);
    EXPECT_EQ(reduce.rounds(), row.rounds) << row.cubes;
    EXPECT_EQ(reduce.triplets(), row.triplets) << row.cubes;
    EXPECT_EQ(reduce.sends(), 3 * row.triplets) << row.cubes;
  }
  EXPECT_EQ(triplet_bytes(8, 128), 4160);
  EXPECT_EQ(triplet_bytes(8, 128, 2, 2), 2080);
  EXPECT_EQ(triplet_bytes(8, 128, 4, 2), 2112);
}

TEST(ReduceSchedule, of_8x8_converges_hop_by_hop) {
  EXPECT_EQ(reduce_schedule({8, 8}, ReduceTopology::kTree).rounds, 8);  // 4 along a line of 8, twice
  EXPECT_EQ(reduce_schedule({8, 8}, ReduceTopology::kStar).rounds, 63);
}

TEST(ReduceSchedule, refuses_what_has_no_ring_and_what_is_larger_than_8x8) {
  EXPECT_THROW(reduce_schedule({1, 4}, ReduceTopology::kRing), Error);
  EXPECT_THROW(reduce_schedule({3, 3}, ReduceTopology::kRing), Error);
  EXPECT_THROW(reduce_schedule({1, 9}, ReduceTopology::kTree), Error);
  EXPECT_THROW(reduce_schedule({0, 1}, ReduceTopology::kTree), Error);
}

TEST(RingOrder, of_2x4_is_the_known_cycle) {
  EXPECT_EQ(ring_order({2, 4}).place, (std::vector<int>{0, 1, 2, 3, 7, 6, 5, 4}));
}

TEST(RingOrder, is_a_cycle_of_single_hops_wherever_there_is_one) {
  for (const Mesh mesh : all_meshes()) {
    if (!has_ring(mesh)) {
      EXPECT_THROW(ring_order(mesh), Error);
      continue;
    }
    const RingOrder ring = ring_order(mesh);
    EXPECT_EQ(std::set(ring.place.begin(), ring.place.end()).size(), static_cast<size_t>(mesh.size()));
    for (int place = 0; place < mesh.size(); ++place) {
      EXPECT_EQ(ring.place[static_cast<size_t>(ring.position[static_cast<size_t>(place)])], place);
      EXPECT_EQ(ring.previous(ring.next(place)), place);
      if (mesh.size() > 1) {
        EXPECT_EQ(mesh.hops(place, ring.next(place)), 1) << mesh.rows << "x" << mesh.columns;
      }
    }
  }
}

TEST(RingOrder, does_not_exist_on_a_line_or_of_an_odd_count) {
  int with_ring = 0;
  for (const Mesh mesh : all_meshes()) with_ring += has_ring(mesh) ? 1 : 0;
  EXPECT_EQ(with_ring, 11);  // 1, 1x2 and 2x1; 2x2, 2x3, 2x4, 3x2, 3x4, 4x2, 4x3, 4x4
  EXPECT_FALSE(has_ring({1, 4}));
  EXPECT_FALSE(has_ring({3, 3}));
}

TEST(Mesh, route_goes_along_the_row_first) {
  const Mesh mesh{4, 4};
  for (int from = 0; from < mesh.size(); ++from) {
    for (int to = 0; to < mesh.size(); ++to) {
      int at = from, hops = 0;
      Direction last = Direction::kNorth;
      while (at != to) {
        last = mesh.toward(at, to);
        at = mesh.neighbour(at, last);
        ++hops;
      }
      EXPECT_EQ(hops, mesh.hops(from, to));
      if (from != to) {
        EXPECT_EQ(mesh.arrives_from(from, to), opposite(last));
      }
    }
  }
}

TEST(CubeGroups, are_contiguous_rectangles_that_share_no_cube) {
  for (int cubes = 1; cubes <= 16; ++cubes) {
    if (cubes == 5 || cubes == 7 || cubes == 10 || cubes == 11 || cubes >= 13) {
      if (cubes != 16) {
        EXPECT_THROW(cube_groups({4, 4}, cubes), Error) << cubes;
        continue;
      }
    }
    const CubeGroups groups = cube_groups({4, 4}, cubes);
    std::set<int> used;
    for (int group = 0; group < groups.count(); ++group) {
      for (int place = 0; place < cubes; ++place) {
        const int cube = groups.cube(group, place);
        EXPECT_TRUE(used.insert(cube).second);
        EXPECT_EQ(groups.group_of(cube), group);
        EXPECT_EQ(groups.place_of(cube), place);
        EXPECT_EQ(groups.sip.hops(cube, groups.cube(group, 0)), groups.group.hops(place, 0));
      }
    }
    for (int cube = 0; cube < 16; ++cube) EXPECT_EQ(groups.group_of(cube) >= 0, used.contains(cube));
  }
}

TEST(CubeGroups, of_8_are_two_of_2x4_so_that_four_sips_have_8_heads) {
  const CubeGroups groups = cube_groups({4, 4}, 8);
  EXPECT_EQ(groups.group, (Mesh{2, 4}));
  EXPECT_EQ(groups.count(), 2);
  EXPECT_EQ(groups.cube(1, 0), 8);
  EXPECT_EQ(head_of(3, 1, groups.count()), 7);
  EXPECT_EQ(cube_groups({4, 4}, 4).group, (Mesh{2, 2}));
  EXPECT_EQ(cube_groups({4, 4}, 2).count(), 8);
}

}  // namespace
}  // namespace coprime::attention
