// What limits a process to fewer cores than a host has: real masks, and made-up files.
#include "transport/host_cores.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>

namespace coprime {
namespace {

namespace fs = std::filesystem;

class HostCoresOfFiles : public ::testing::Test {
 protected:
  HostCoresOfFiles() : root_(fs::temp_directory_path() / fmt::format("coprime-host-cores-{}", ::getpid())) {
    fs::create_directories(root_);
  }
  ~HostCoresOfFiles() override { fs::remove_all(root_); }
  void write(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  HostCores read() { return read_host_cores(root_ / "proc", root_ / "cgroup", root_ / "node"); }
  fs::path root_;
};

TEST_F(HostCoresOfFiles, a_host_that_tells_nothing_has_its_mask_alone) {
  const HostCores host = read();
  EXPECT_FALSE(host.mask.empty());
  EXPECT_FALSE(host.quota);
  EXPECT_TRUE(host.nodes.empty());
  EXPECT_EQ(host.usable(), static_cast<int>(host.mask.size()));
}

TEST_F(HostCoresOfFiles, the_smallest_quota_of_a_version_2_group_and_those_above_counts) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_FALSE(read().quota);
  write("cgroup/a/cpu.max", "350000 100000\n");
  EXPECT_EQ(read().quota, 3.5);
  write("cgroup/a/b/cpu.max", "400000 100000\n");
  EXPECT_EQ(read().quota, 3.5);
  write("cgroup/cpu.max", "100000 200000\n");  // a container may see its group as the root
  EXPECT_EQ(read().quota, 0.5);
  EXPECT_EQ(read().usable(), 1);
}

TEST_F(HostCoresOfFiles, version_1_has_its_quota_in_two_files_under_either_name_of_the_hierarchy) {
  write("proc/self/cgroup", "4:cpu,cpuacct:/box\n3:cpuset:/other\n1:name=systemd:/\n");
  write("cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n");
  write("cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(read().quota);
  write("cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "150000\n");
  EXPECT_EQ(read().quota, 1.5);
  write("cgroup/cpu/cpu.cfs_quota_us", "50000\n");  // of the root, by the link
  write("cgroup/cpu/cpu.cfs_period_us", "50000\n");
  EXPECT_EQ(read().quota, 1.0);
}

TEST_F(HostCoresOfFiles, nodes_without_memory_are_none) {
  write("node/online", "0-2\n");
  write("node/node0/cpulist", "0-1,4\n");
  write("node/node0/meminfo", "Node 0 MemTotal:       1000 kB\n");
  write("node/node1/cpulist", "2-3\n");
  write("node/node1/meminfo", "Node 1 MemTotal:       0 kB\n");
  write("node/node2/cpulist", "\n");
  write("node/node2/meminfo", "Node 2 MemTotal:       500 kB\n");
  const HostCores host = read();
  ASSERT_EQ(host.nodes.size(), 2u);
  EXPECT_EQ(host.nodes[0].id, 0);
  EXPECT_EQ(host.nodes[0].cores, (std::vector<int>{0, 1, 4}));
  EXPECT_EQ(host.nodes[1].id, 2);
  EXPECT_TRUE(host.nodes[1].cores.empty());
}

TEST(HostCores, the_mask_is_the_calling_threads) {
  const std::vector<int> all = read_host_cores().mask;
  std::thread([&] {
    ASSERT_TRUE(run_on({{all.back()}}));
    const HostCores host = read_host_cores();
    EXPECT_EQ(host.mask, std::vector<int>{all.back()});
    EXPECT_EQ(host.usable(), 1);
  }).join();
  EXPECT_EQ(read_host_cores().mask, all);
}

TEST(HostCores, a_child_has_the_mask_that_its_parent_gave_it) {
  const std::vector<int> all = read_host_cores().mask;
  const pid_t child = ::fork();
  if (child == 0) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(all[0]), &one);
    const bool done = ::sched_setaffinity(0, sizeof one, &one) == 0;
    ::_exit(done && read_host_cores().mask == std::vector<int>{all[0]} ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(HostCores, this_hosts_cores_lie_in_its_nodes) {
  const HostCores host = read_host_cores();
  EXPECT_GE(host.usable(), 1);
  EXPECT_LE(host.usable(), static_cast<int>(host.mask.size()));
  for (const MemoryNode& node : host.nodes) EXPECT_TRUE(std::ranges::is_sorted(node.cores));
}

TEST(HostCores, no_core_is_refused) { EXPECT_FALSE(run_on({})); }

TEST(CoreLists, are_read_and_written_with_ranges) {
  EXPECT_EQ(parse_core_list("0-3,8,10-11"), (std::vector<int>{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parse_core_list(""), std::vector<int>{});
  EXPECT_EQ(parse_core_list("2\n"), std::vector<int>{2});
  EXPECT_EQ(parse_core_list("1-x"), std::vector<int>{});
  EXPECT_EQ(parse_core_list("5-2,7"), std::vector<int>{7});
  EXPECT_EQ(parse_core_list("0-99999999"), std::vector<int>{});
  EXPECT_EQ(core_list_text(std::vector<int>{0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
}

}  // namespace
}  // namespace coprime
