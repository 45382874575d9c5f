// Which cores the threads of a rank are pinned to, and the NUMA node that its memory comes from: a pure choice that
// every rank of a host makes for itself.
#pragma once

#include <string>
#include <vector>

#include "transport/host_cores.h"

namespace coprime {

struct CorePlan {
  std::vector<int> cores;  // of each thread; empty: they are not pinned
  std::string why_not;     // of no cores
  int node = -1;           // whose memory and cores are used; -1: any
  std::vector<int> node_cores;
};

// Of the rank that is the `index`-th of the `ranks` of its host, all with so many threads. Threads are pinned where one
// more than ranks * threads (the front's, or whatever else the host has to do) fits the mask and the quota: a spinning
// thread that is pinned beside another would keep it waiting. Where there are several nodes, ranks are spread over them
// evenly and keep to theirs if the threads of all fit; else pinned ones take the cores in the order of the nodes. No
// two threads have the same core.
CorePlan plan_cores(const HostCores& host, int ranks, int index, int threads);

// Binds this thread, and those that it starts, to the plan's node. What the system refuses is left as it is.
void keep_to_node(const CorePlan& plan);

// The ranks of a host that nobody chose the number of: one for each node that the mask has cores of.
int default_ranks(const HostCores& host);

// "cores 0-3, node 0", or why the threads are not pinned.
std::string core_plan_text(const CorePlan& plan);

}  // namespace coprime
