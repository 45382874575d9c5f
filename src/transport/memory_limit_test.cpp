#include "transport/memory_limit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <limits>

#include "base/check.h"

namespace coprime {
namespace {

namespace fs = std::filesystem;

// A made-up /proc and /sys/fs/cgroup.
class MemoryLimit : public ::testing::Test {
 protected:
  MemoryLimit() : root_(fs::temp_directory_path() / fmt::format("coprime-memory-limit-{}", ::getpid())) {
    fs::create_directories(root_);
  }
  ~MemoryLimit() override { fs::remove_all(root_); }
  void write(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  int64_t available() { return available_memory_bytes(root_ / "proc", root_ / "cgroup"); }
  fs::path root_;
};

TEST_F(MemoryLimit, a_system_that_tells_nothing_has_no_limit) {
  EXPECT_EQ(available(), std::numeric_limits<int64_t>::max());
}

TEST_F(MemoryLimit, is_what_the_system_has_available) {
  write("proc/meminfo", "MemTotal: 900 kB\nMemFree: 10 kB\nMemAvailable:    300 kB\n");
  write("proc/self/cgroup", "0::/\n");
  EXPECT_EQ(available(), 300 * 1024);
}

TEST_F(MemoryLimit, is_what_a_version_2_group_leaves) {
  write("proc/meminfo", "MemAvailable: 300 kB\n");
  write("proc/self/cgroup", "0::/a/b\n");
  write("cgroup/a/b/memory.max", "100000\n");
  write("cgroup/a/b/memory.current", "90000\n");
  write("cgroup/a/b/memory.stat", "anon 50000\ninactive_file 20000\n");
  EXPECT_EQ(available(), 30000);
}

TEST_F(MemoryLimit, is_what_a_group_above_leaves) {
  write("proc/meminfo", "MemAvailable: 300 kB\n");
  write("proc/self/cgroup", "0::/a/b\n");
  write("cgroup/a/b/memory.max", "max\n");
  write("cgroup/a/b/memory.current", "90000\n");
  write("cgroup/a/memory.max", "95000\n");
  write("cgroup/a/memory.current", "94000\n");
  EXPECT_EQ(available(), 1000);
}

TEST_F(MemoryLimit, is_what_the_root_leaves_when_a_container_hides_the_path) {
  write("proc/meminfo", "MemAvailable: 300 kB\n");
  write("proc/self/cgroup", "0::/not/seen/here\n");
  write("cgroup/memory.max", "5000\n");
  write("cgroup/memory.current", "6000\n");
  EXPECT_EQ(available(), 0);
}

TEST_F(MemoryLimit, is_what_a_version_1_group_leaves) {
  write("proc/meminfo", "MemAvailable: 300 kB\n");
  write("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/box\n0::/\n");
  write("cgroup/memory/box/memory.limit_in_bytes", "100000\n");
  write("cgroup/memory/box/memory.usage_in_bytes", "90000\n");
  write("cgroup/memory/box/memory.stat", "inactive_file 1\ntotal_inactive_file 4000\n");
  EXPECT_EQ(available(), 14000);
}

TEST(MemoryLimitOfThisHost, is_positive) { EXPECT_GT(available_memory_bytes(), 0); }

}  // namespace
}  // namespace coprime
