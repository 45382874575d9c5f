#include "engine/core_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace coprime {
namespace {

// The nodes with those of their cores that the mask has. Cores of no node stand in one of their own, at the end.
std::vector<MemoryNode> usable_nodes(const HostCores& host) {
  std::vector<int> rest = host.mask;
  std::vector<MemoryNode> nodes;
  for (const MemoryNode& node : host.nodes) {
    MemoryNode usable{node.id, {}};
    std::ranges::set_intersection(node.cores, rest, std::back_inserter(usable.cores));
    std::erase_if(rest, [&](int core) { return std::ranges::binary_search(usable.cores, core); });
    if (!usable.cores.empty()) nodes.push_back(std::move(usable));
  }
  if (!rest.empty()) nodes.push_back({-1, rest});
  return nodes;
}

std::vector<int> slice(const std::vector<int>& cores, int share, int count) {
  const auto begin = cores.begin() + static_cast<ptrdiff_t>(share) * count;
  return {begin, begin + count};
}

// Ranks [first, last) are the node's; with fewer ranks than nodes, the first nodes have one each.
struct RankRange {
  int first, last;
};
RankRange ranks_of(int node, int nodes, int ranks) {
  if (ranks < nodes) return {std::min(node, ranks), std::min(node + 1, ranks)};
  return {static_cast<int>(int64_t{ranks} * node / nodes), static_cast<int>(int64_t{ranks} * (node + 1) / nodes)};
}

// Empty: there is a core for each thread, and one more.
std::string why_not_pinned(const HostCores& host, int64_t threads) {
  const auto cores = static_cast<int64_t>(host.mask.size());
  const std::string wanted = fmt::format("{} thread{} and one more", threads, threads == 1 ? "" : "s");
  if (threads + 1 > cores)
    return fmt::format("{}, {} core{} in the affinity mask", wanted, cores, cores == 1 ? "" : "s");
  if (host.quota && static_cast<double>(threads + 1) > *host.quota)
    return fmt::format("{}, a quota of {:.3g} cores", wanted, *host.quota);
  return {};
}

bool fit_their_nodes(const std::vector<MemoryNode>& nodes, int ranks, int threads) {
  const auto count = static_cast<int>(nodes.size());
  for (int node = 0; node < count; ++node) {
    const RankRange range = ranks_of(node, count, ranks);
    const auto cores = static_cast<int64_t>(nodes[static_cast<size_t>(node)].cores.size());
    if (int64_t{range.last - range.first} * threads > cores) return false;
  }
  return true;
}

}  // namespace

CorePlan plan_cores(const HostCores& host, int ranks, int index, int threads) {
  const std::vector<MemoryNode> nodes = usable_nodes(host);
  const auto count = static_cast<int>(nodes.size());
  CorePlan plan{.why_not = why_not_pinned(host, int64_t{ranks} * threads)};
  const bool pinned = plan.why_not.empty();
  if (!fit_their_nodes(nodes, ranks, threads)) {
    std::vector<int> all;
    for (const MemoryNode& node : nodes) all.insert(all.end(), node.cores.begin(), node.cores.end());
    if (pinned) plan.cores = slice(all, index, threads);
    return plan;
  }
  for (int node = 0; node < count; ++node) {
    const RankRange range = ranks_of(node, count, ranks);
    if (index < range.first || index >= range.last) continue;
    const MemoryNode& mine = nodes[static_cast<size_t>(node)];
    if (pinned) plan.cores = slice(mine.cores, index - range.first, threads);
    if (count == 1 || mine.id < 0) continue;
    plan.node = mine.id;
    plan.node_cores = mine.cores;
  }
  return plan;
}

void keep_to_node(const CorePlan& plan) {
  if (plan.node < 0) return;
  prefer_memory_of(plan.node);
  run_on(plan.node_cores);
}

int default_ranks(const HostCores& host) {
  const std::vector<MemoryNode> nodes = usable_nodes(host);
  return std::max(static_cast<int>(std::ranges::count_if(nodes, [](const MemoryNode& node) { return node.id >= 0; })),
                  1);
}

std::string core_plan_text(const CorePlan& plan) {
  const std::string node = plan.node < 0 ? "" : fmt::format(", node {}", plan.node);
  if (plan.cores.empty()) return fmt::format("not pinned ({}){}", plan.why_not, node);
  return fmt::format("core{} {}{}", plan.cores.size() == 1 ? "" : "s", core_list_text(plan.cores), node);
}

}  // namespace coprime
