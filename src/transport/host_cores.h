// Which cores this process may use, and where they and the memory lie.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coprime {

// A NUMA node that has memory.
struct MemoryNode {
  int id = 0;
  std::vector<int> cores;  // in rising order
};

struct HostCores {
  std::vector<int> mask;        // of this thread, in rising order; one at least
  std::optional<double> quota;  // cores' worth of time that the control groups grant; none: no limit
  std::vector<MemoryNode> nodes;

  // How many threads can run at once: of the mask and of the quota, the smaller; one at least.
  int usable() const;
};

// Roots are parameters for tests; the mask is the calling thread's.
HostCores read_host_cores(const std::filesystem::path& proc = "/proc",
                          const std::filesystem::path& cgroup = "/sys/fs/cgroup",
                          const std::filesystem::path& nodes = "/sys/devices/system/node");

// "0-3,8" as 0, 1, 2, 3, 8; stops where the text is no such list.
std::vector<int> parse_core_list(std::string_view text);
// And back.
std::string core_list_text(std::span<const int> cores);

// From now on this thread, and those that it starts, run on these cores; or take their memory from the node as long as
// it has some. False where the system does not let them.
bool run_on(std::span<const int> cores);
bool prefer_memory_of(int node);

}  // namespace coprime
