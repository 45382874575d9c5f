#include "engine/core_plan.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <thread>

namespace coprime {
namespace {

std::vector<int> cores(int first, int count) {
  std::vector<int> list(static_cast<size_t>(count));
  std::iota(list.begin(), list.end(), first);
  return list;
}

// Cores are numbered node by node.
HostCores host_of(std::vector<int> cores_of_nodes, std::optional<double> quota = {}) {
  HostCores host{.mask = {}, .quota = quota, .nodes = {}};
  for (size_t node = 0; node < cores_of_nodes.size(); ++node) {
    const std::vector<int> list = cores(static_cast<int>(host.mask.size()), cores_of_nodes[node]);
    host.nodes.push_back({static_cast<int>(node), list});
    host.mask.insert(host.mask.end(), list.begin(), list.end());
  }
  return host;
}

TEST(CorePlan, threads_are_pinned_where_one_more_fits) {
  EXPECT_EQ(plan_cores(host_of({5}), 2, 0, 2).cores, cores(0, 2));
  EXPECT_EQ(plan_cores(host_of({5}), 2, 1, 2).cores, cores(2, 2));
  const CorePlan plan = plan_cores(host_of({4}), 2, 1, 2);
  EXPECT_TRUE(plan.cores.empty());
  EXPECT_EQ(core_plan_text(plan), "not pinned (4 threads and one more, 4 cores in the affinity mask)");
}

TEST(CorePlan, a_quota_counts_like_the_mask) {
  EXPECT_EQ(plan_cores(host_of({64}, 5.0), 2, 0, 2).cores, cores(0, 2));
  const CorePlan plan = plan_cores(host_of({64}, 4.5), 1, 0, 4);
  EXPECT_TRUE(plan.cores.empty());
  EXPECT_EQ(core_plan_text(plan), "not pinned (4 threads and one more, a quota of 4.5 cores)");
}

TEST(CorePlan, only_cores_of_the_mask_are_used) {
  HostCores host = host_of({8});
  host.mask = {1, 3, 6};
  EXPECT_EQ(plan_cores(host, 1, 0, 2).cores, (std::vector<int>{1, 3}));
  EXPECT_EQ(core_plan_text(plan_cores(host, 2, 1, 1)), "core 3");
  host.nodes.clear();  // a system that tells nothing of nodes
  EXPECT_EQ(plan_cores(host, 1, 0, 2).cores, (std::vector<int>{1, 3}));
}

TEST(CorePlan, ranks_are_spread_over_the_nodes_and_keep_to_them) {
  const HostCores host = host_of({8, 8});
  const CorePlan second = plan_cores(host, 2, 1, 4);
  EXPECT_EQ(second.cores, cores(8, 4));
  EXPECT_EQ(core_plan_text(second), "cores 8-11, node 1");
  EXPECT_EQ(plan_cores(host, 4, 1, 2).cores, cores(2, 2));
  EXPECT_EQ(plan_cores(host, 4, 2, 2).cores, cores(8, 2));
  EXPECT_EQ(plan_cores(host, 1, 0, 4).node, 0);
}

TEST(CorePlan, a_rank_keeps_to_its_node_where_no_core_is_left_to_pin_threads) {
  const HostCores host = host_of({4, 4});
  const CorePlan plan = plan_cores(host, 2, 1, 4);
  EXPECT_TRUE(plan.cores.empty());
  EXPECT_EQ(plan.node, 1);
  EXPECT_EQ(plan.node_cores, cores(4, 4));
  EXPECT_EQ(core_plan_text(plan), "not pinned (8 threads and one more, 8 cores in the affinity mask), node 1");
}

TEST(CorePlan, threads_that_do_not_fit_a_node_take_cores_in_the_order_of_the_nodes) {
  const CorePlan plan = plan_cores(host_of({4, 4}), 1, 0, 6);
  EXPECT_EQ(plan.cores, cores(0, 6));
  EXPECT_EQ(plan.node, -1);
  EXPECT_EQ(plan_cores(host_of({2, 6}), 2, 0, 3).cores, cores(0, 3));  // the first would not fit its node
  EXPECT_EQ(plan_cores(host_of({2, 6}), 2, 1, 3).cores, cores(3, 3));
}

TEST(CorePlan, no_core_is_given_twice_whatever_the_host) {
  for (const auto& nodes : {std::vector<int>{17}, {8, 9}, {3, 7, 7}, {1, 16}}) {
    const HostCores host = host_of(nodes);
    for (int ranks = 1; ranks <= 16; ++ranks) {
      for (int threads = 1; ranks * threads < 17; ++threads) {
        std::set<int> given;
        for (int index = 0; index < ranks; ++index) {
          const CorePlan plan = plan_cores(host, ranks, index, threads);
          ASSERT_EQ(plan.cores.size(), static_cast<size_t>(threads)) << ranks << " x " << threads;
          for (const int core : plan.cores) ASSERT_TRUE(given.insert(core).second) << ranks << " x " << threads;
        }
      }
    }
  }
}

TEST(DefaultRanks, are_one_for_each_node_that_the_mask_has_cores_of) {
  EXPECT_EQ(default_ranks(host_of({8})), 1);
  EXPECT_EQ(default_ranks(host_of({8, 8})), 2);
  HostCores host = host_of({8, 8, 8});
  host.mask = cores(8, 3);
  EXPECT_EQ(default_ranks(host), 1);
  host.nodes.clear();
  EXPECT_EQ(default_ranks(host), 1);
}

TEST(KeepToNode, binds_the_calling_thread) {
  const HostCores before = read_host_cores();
  CorePlan plan{.node = before.nodes.empty() ? 0 : before.nodes[0].id, .node_cores = {before.mask[0]}};
  const auto bound = [&] {
    keep_to_node(plan);
    EXPECT_EQ(read_host_cores().mask, plan.node_cores);
  };
  std::thread(bound).join();
  EXPECT_EQ(read_host_cores().mask, before.mask);
}

}  // namespace
}  // namespace coprime
