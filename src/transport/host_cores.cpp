#include "transport/host_cores.h"

#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

#include "transport/control_group.h"

namespace coprime {
namespace {

constexpr int kMaxNodes = 1024;

std::vector<int> affinity_mask() {
  std::vector<int> cores;
  for (int size = CPU_SETSIZE; size <= 1 << 16; size *= 2) {  // a large host's mask does not fit the usual one
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(size));
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(size));
    const bool got = ::sched_getaffinity(0, bytes, set) == 0;
    for (int core = 0; got && core < size; ++core) {
      if (CPU_ISSET_S(static_cast<size_t>(core), bytes, set)) cores.push_back(core);
    }
    CPU_FREE(set);
    if (got) break;
  }
  if (cores.empty()) cores.push_back(0);
  return cores;
}

std::optional<double> number(const std::optional<std::string>& text) {
  double value = 0;
  if (std::istringstream words(text.value_or("")); !(words >> value)) return std::nullopt;
  return value;
}

// Cores' worth of time that one group grants; none: no limit ("max", or -1).
std::optional<double> quota_of(int version, const std::filesystem::path& group) {
  std::optional<double> quota, period;
  if (version == 2) {
    std::string most, each;
    if (std::istringstream words(first_line(group / "cpu.max").value_or("")); !(words >> most >> each))
      return std::nullopt;
    quota = number(most);
    period = number(each);
  } else {
    quota = number(first_line(group / "cpu.cfs_quota_us"));
    period = number(first_line(group / "cpu.cfs_period_us"));
  }
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return *quota / *period;
}

bool has_memory(const std::filesystem::path& node) {
  // "Node 0 MemTotal:  123 kB"
  std::string name, total;
  int id = 0;
  int64_t kib = 0;
  std::istringstream words(first_line(node / "meminfo").value_or(""));
  return (words >> name >> id >> total >> kib) && kib > 0;
}

std::vector<MemoryNode> memory_nodes(const std::filesystem::path& root) {
  std::vector<MemoryNode> nodes;
  for (int id : parse_core_list(first_line(root / "online").value_or(""))) {
    const std::filesystem::path node = root / fmt::format("node{}", id);
    if (has_memory(node)) nodes.push_back({id, parse_core_list(first_line(node / "cpulist").value_or(""))});
  }
  return nodes;
}

}  // namespace

int HostCores::usable() const {
  const auto cores = static_cast<int>(mask.size());
  return std::max(quota ? std::min(cores, static_cast<int>(std::min(*quota, 1e6))) : cores, 1);
}

HostCores read_host_cores(const std::filesystem::path& proc, const std::filesystem::path& cgroup,
                          const std::filesystem::path& nodes) {
  HostCores host{.mask = affinity_mask(), .quota = {}, .nodes = memory_nodes(nodes)};
  for (const ControlGroups& groups : control_groups(proc, cgroup, "cpu")) {
    for (const std::filesystem::path& group : groups.folders) {
      if (const auto quota = quota_of(groups.version, group))
        host.quota = std::min(host.quota.value_or(*quota), *quota);
    }
  }
  return host;
}

std::vector<int> parse_core_list(std::string_view text) {
  std::vector<int> cores;
  const char *at = text.data(), *const end = at + text.size();
  const auto take = [&](int& value) {
    const auto [next, error] = std::from_chars(at, end, value);
    at = next;
    return error == std::errc() && value >= 0 && value < 1 << 16;
  };
  for (int first = 0; take(first);) {
    int last = first;
    if (at != end && *at == '-' && (++at, !take(last))) break;
    for (int core = first; core <= last; ++core) cores.push_back(core);
    if (at == end || *at++ != ',') break;
  }
  return cores;
}

std::string core_list_text(std::span<const int> cores) {
  std::string text;
  for (size_t i = 0; i < cores.size();) {
    size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cores[i]);
    if (last > i) text += fmt::format("-{}", cores[last]);
    i = last + 1;
  }
  return text;
}

bool run_on(std::span<const int> cores) {
  if (cores.empty()) return false;
  const auto size = static_cast<size_t>(std::ranges::max(cores)) + 1;
  cpu_set_t* set = CPU_ALLOC(size);
  const size_t bytes = CPU_ALLOC_SIZE(size);
  CPU_ZERO_S(bytes, set);
  for (const int core : cores) CPU_SET_S(static_cast<size_t>(core), bytes, set);
  const bool done = ::sched_setaffinity(0, bytes, set) == 0;
  CPU_FREE(set);
  return done;
}

bool prefer_memory_of(int node) {
  constexpr int kWordBits = 8 * sizeof(unsigned long);
  if (node < 0 || node >= kMaxNodes) return false;
  std::array<unsigned long, kMaxNodes / kWordBits> mask{};
  mask[static_cast<size_t>(node / kWordBits)] = 1ul << (node % kWordBits);
  return ::syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask.data(), kMaxNodes + 1) == 0;
}

}  // namespace coprime
