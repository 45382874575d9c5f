#include "sim/reduce_model.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <vector>

namespace coprime::sim {
namespace {

Tick cycles(const Chip& chip, int64_t count) { return static_cast<Tick>(count * chip.pe.ps_per_cycle); }

Tick transfer(const Chip& chip, const Link& link, int64_t bytes) {
  const int64_t packets = (bytes + chip.ipcq.packet_bytes - 1) / chip.ipcq.packet_bytes;
  return static_cast<Tick>((bytes * 1000 + link.gb_s - 1) / link.gb_s +
                           (packets - 1) / 2);  // half a tick of rounding each
}

struct Merge {
  Tick latency = 0;  // from O's arrival to the send of the merged O
  Tick period = 0;   // from one merge to the next, where all has arrived
};

// Three receives, eleven operations that the CPU issues one by one to MATH, three sends; three such merges in a row.
Merge merge_times(const Chip& chip, int64_t rows, int64_t d) {
  const auto work = [&](int64_t elements, int64_t cost) {
    return cycles(chip, chip.pe.math.fill_cycles + (elements * cost + chip.pe.math.lanes - 1) / chip.pe.math.lanes);
  };
  const Tick narrow = work(rows, 1), exponential = work(rows, chip.pe.math.exp_cost), wide = work(rows * d, 1);
  const std::array<Tick, 11> durations = {narrow, narrow, exponential, narrow, exponential, narrow,
                                          narrow, narrow, wide,        wide,   wide};
  constexpr size_t kNewM = 0, kReadsM2 = 3, kReadsL2 = 6, kNewL = 7, kReadsO2 = 9, kNewO = 10;
  const Tick issue = cycles(chip, chip.pe.issue.math), receive = cycles(chip, chip.pe.issue.recv),
             send = cycles(chip, chip.pe.issue.send);
  std::array<Tick, 11> ends = {};
  Tick cpu = 0, math = 0, arrival = 0;
  Merge merge;
  for (int i = 0; i < 3; ++i) {
    cpu = std::max(cpu, ends[kReadsM2]) + receive;
    cpu = std::max(cpu, ends[kReadsL2]) + receive;
    cpu = std::max(cpu, ends[kReadsO2]);
    merge.period = cpu - std::exchange(arrival, cpu);
    cpu += receive;
    for (size_t op = 0; op < durations.size(); ++op) {
      cpu += issue;
      ends[op] = math = std::max(math, cpu) + durations[op];
      if (chip.pe.math.blocking) cpu = math;
    }
    if (i > 0) continue;
    Tick sends = cpu;
    for (const size_t op : {kNewM, kNewL, kNewO}) sends = std::max(sends, ends[op]) + send;
    merge.latency = sends - arrival;
  }
  return merge;
}

}  // namespace

Tick ReduceCost::total() const { return std::max(contention, energy + distance) + step * static_cast<Tick>(depth); }

ReduceCost reduce_cost(const Chip& chip, const Link& link, const attention::ReduceSchedule& schedule, int64_t rows,
                       int64_t d) {
  ReduceCost cost;
  if (schedule.messages.empty()) return cost;
  const auto places = static_cast<size_t>(schedule.mesh.size());
  std::vector<int> depth(places), hops(places), receives(places);
  std::set<std::pair<int, int>> links;
  int64_t hop_messages = 0;
  for (const attention::ReduceMessage& message : schedule.messages) {  // by round: what is below comes first
    const auto from = static_cast<size_t>(message.from), to = static_cast<size_t>(message.to);
    depth[to] = std::max(depth[to], depth[from] + 1);
    hops[to] = std::max(hops[to], hops[from] + message.hops);
    ++receives[to];
    hop_messages += message.hops;
    for (int at = message.from; at != message.to;) {
      const int next = schedule.mesh.neighbour(at, schedule.mesh.toward(at, message.to));
      links.insert({at, next});
      at = next;
    }
  }
  const auto root = static_cast<size_t>(schedule.root);
  const Merge merge = merge_times(chip, rows, d);
  const Tick message = transfer(chip, link, 4 * rows * d), hop = static_cast<Tick>(link.hop_ps);
  cost.depth = depth[root];
  cost.step = message + hop + merge.latency;
  cost.contention = static_cast<Tick>(std::max(receives[root] - depth[root], 0)) * std::max(merge.period, message);
  const auto used = static_cast<int64_t>(links.size());
  cost.energy = static_cast<Tick>(hop_messages - used) * message / static_cast<Tick>(used);
  cost.distance = static_cast<Tick>(hops[root] - depth[root]) * hop;
  return cost;
}

Tick reduce_cost(const Chip& chip, const attention::TwoLevelReduce& reduce, int64_t rows, int64_t d) {
  return reduce_cost(chip, chip.ipcq.pe, reduce.within, rows, d).total() +
         reduce_cost(chip, chip.ipcq.cube, reduce.across, rows, d).total();
}

}  // namespace coprime::sim
