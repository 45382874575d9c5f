#include "plan/machine.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/check.h"
#include "base/error.h"

namespace coprime {
namespace {

constexpr int64_t kGb = 1'000'000'000;

Machine typical(std::string name, std::string source, int64_t cores, int64_t memory_gb, double read_gb_s, double gflops,
                std::string_view link, double layer_us) {
  Machine machine{.name = name, .source = std::move(source), .repeats = true, .link = *find_link(link)};
  machine.hosts.push_back({.name = std::move(name),
                           .cores = cores,
                           .memory_bytes = memory_gb * kGb,
                           .gflops = gflops,
                           .front_us = 30,
                           .read = {{cores, kGb, read_gb_s}},
                           .layers = {{cores, layer_us, layer_us * 1.2}}});
  return machine;
}

// Nearest measured count of threads; of two, the lower one.
template <class Figure>
int64_t nearest_threads(std::span<const Figure> figures, int64_t threads) {
  int64_t best = figures.front().threads;
  for (const Figure& figure : figures) {
    if (std::abs(figure.threads - threads) < std::abs(best - threads)) best = figure.threads;
  }
  return best;
}

// Between two measured sizes by the logarithm of the size; outside of them the nearest.
double by_size(std::vector<std::pair<double, double>> points, double bytes) {
  std::ranges::sort(points);
  if (bytes <= points.front().first) return points.front().second;
  for (size_t i = 1; i < points.size(); ++i) {
    const auto [size, gb_s] = points[i];
    const auto [size_before, gb_s_before] = points[i - 1];
    if (bytes > size) continue;
    const double share = std::log(bytes / size_before) / std::log(size / size_before);
    return gb_s_before + share * (gb_s - gb_s_before);
  }
  return points.back().second;
}

const PairLink* find_pair(const Machine& machine, int a, int b) {
  for (const PairLink& pair : machine.pairs) {
    if ((pair.from == a && pair.to == b) || (pair.from == b && pair.to == a)) return &pair;
  }
  return nullptr;
}

const LinkNumbers& link_between(const Machine& machine, std::span<const size_t> placement, int a, int b) {
  if (const PairLink* const pair = find_pair(machine, a, b)) return pair->link;
  if (machine.link) return *machine.link;
  const bool together = !machine.repeats && placement[static_cast<size_t>(a)] == placement[static_cast<size_t>(b)];
  return *find_link(together ? "shm" : "10g");
}

std::optional<std::pair<int, int>> unnamed_pair(const Machine& machine, int64_t ranks) {
  for (int a = 0; a < static_cast<int>(ranks); ++a) {
    for (int b = a + 1; b < static_cast<int>(ranks); ++b) {
      if (find_pair(machine, a, b) == nullptr) return std::pair{a, b};
    }
  }
  return std::nullopt;
}

}  // namespace

std::span<const Machine> typical_machines() {
  // Reads: nine tenths of the memory's nominal bandwidth (a plain read reaches 85 to 95 %).
  static const std::vector<Machine> kMachines = {
      typical("desktop", "2 channels of DDR5-5600 (89.6 GB/s nominal), 8 cores, 64 GB", 8, 64, 80, 1000, "10g", 12),
      typical("server", "12 channels of DDR5-4800 (460 GB/s nominal), 64 cores, 768 GB", 64, 768, 400, 6000, "100g",
              20),
      typical("raspberry-pi-5", "LPDDR4X-4267 (17 GB/s nominal), 4 cores, 8 GB", 4, 8, 15, 100, "1g", 30),
      typical("dgx-spark", "LPDDR5X (273 GB/s nominal), 128 GB, ConnectX-7", 20, 128, 240, 30000, "100g-rdma", 15),
      typical("mac-studio", "M3 Ultra (819 GB/s nominal), 256 GB, Thunderbolt 5", 24, 256, 700, 20000, "10g", 20),
      typical("rtx-3090", "GDDR6X (936 GB/s nominal), 24 GB, PCIe", 1, 24, 840, 35000, "pcie5x8", 15),
      typical("rtx-4090", "GDDR6X (1008 GB/s nominal), 24 GB, PCIe", 1, 24, 900, 80000, "pcie5x8", 15),
      typical("r9700", "GDDR6 (640 GB/s nominal), 32 GB, PCIe 5.0 x8", 1, 32, 580, 45000, "pcie5x8", 15),
      typical("h200", "HBM3e (4800 GB/s nominal), 141 GB, NVLink", 1, 141, 4300, 60000, "nvlink", 12),
  };
  return kMachines;
}

const Machine* find_machine(std::string_view name) {
  for (const Machine& machine : typical_machines()) {
    if (machine.name == name) return &machine;
  }
  return nullptr;
}

std::vector<size_t> place_ranks(const Machine& machine, int64_t ranks) {
  COPRIME_CHECK(!machine.hosts.empty(), "{}: no host", machine.name);
  std::vector<size_t> placement(static_cast<size_t>(ranks), 0);
  if (machine.hosts.size() == 1) return placement;
  std::vector<bool> placed(placement.size());
  for (size_t host = 0; host < machine.hosts.size(); ++host) {
    for (const int rank : machine.hosts[host].ranks) {
      if (rank >= ranks) continue;
      placement[static_cast<size_t>(rank)] = host;
      placed[static_cast<size_t>(rank)] = true;
    }
  }
  if (const auto missing = std::ranges::find(placed, false); missing != placed.end()) {
    fail(ErrorKind::kUsage, "{} has no host for rank {} of {}: name it among a host's ranks, or plan for fewer",
         machine.name, missing - placed.begin(), ranks);
  }
  return placement;
}

bool on_one_host(const Machine& machine, std::span<const size_t> placement) {
  return placement.size() == 1 ||
         (!machine.repeats && std::ranges::all_of(placement, [&](size_t host) { return host == placement[0]; }));
}

void check_ranks(const Machine& machine, int64_t ranks) {
  const auto exists = [&](int rank) {
    return rank < ranks || std::ranges::any_of(machine.hosts, [&](const MachineHost& host) {
             return std::ranges::find(host.ranks, rank) != host.ranks.end();
           });
  };
  for (const PairLink& pair : machine.pairs) {
    if (exists(pair.from) && exists(pair.to)) continue;
    fail(ErrorKind::kUsage,
         "{} has a link between ranks {} and {}; expected ranks in 0..{} or those of its hosts: correct \"from\" and "
         "\"to\", or plan for more ranks",
         machine.name, pair.from, pair.to, ranks - 1);
  }
  if (!machine.shares.empty() && std::ssize(machine.shares) != ranks) {
    fail(ErrorKind::kUsage,
         "{} has {} shares; expected one for each of the {} ranks: correct \"shares\", or leave them away",
         machine.name, machine.shares.size(), ranks);
  }
}

namespace {

// What one of `on_host` ranks has of the rate that `threads` of them all reach together.
double share_of(std::span<const ReadFigure> figures, int64_t threads, int64_t on_host, double bytes) {
  const int64_t all = nearest_threads<ReadFigure>(figures, threads * on_host);
  std::vector<std::pair<double, double>> points;
  for (const ReadFigure& figure : figures) {
    if (figure.threads == all) points.emplace_back(static_cast<double>(figure.bytes), figure.gb_s);
  }
  return by_size(points, bytes * static_cast<double>(on_host)) / static_cast<double>(on_host);
}

}  // namespace

double RankSpeed::read_gb_s(double bytes) const { return share_of(host->read, threads, on_host, bytes); }

double RankSpeed::attention_gb_s(double bytes) const {
  return share_of(host->attention.empty() ? host->read : host->attention, threads, on_host, bytes);
}

double RankSpeed::state_gb_s(double bytes) const {
  return share_of(host->states.empty() ? host->read : host->states, threads, on_host, bytes);
}

double RankSpeed::product_gb_s(std::string_view format, double bytes) const {
  std::vector<ProductFigure> of_format;
  std::ranges::copy_if(host->products, std::back_inserter(of_format),
                       [&](const ProductFigure& figure) { return figure.format == format; });
  if (of_format.empty()) return read_gb_s(bytes);
  const int64_t all = nearest_threads<ProductFigure>(of_format, threads * on_host);
  std::vector<std::pair<double, double>> points;
  for (const ProductFigure& figure : of_format) {
    if (figure.threads == all) points.emplace_back(static_cast<double>(figure.bytes), figure.gb_s);
  }
  return by_size(points, bytes * static_cast<double>(on_host)) / static_cast<double>(on_host);
}

LayerFigure RankSpeed::layer() const {
  if (host->layers.empty()) return {};
  const int64_t nearest = nearest_threads<LayerFigure>(host->layers, threads);
  return *std::ranges::find(host->layers, nearest, &LayerFigure::threads);
}

RankSpeed rank_speed(const Machine& machine, std::span<const size_t> placement, size_t rank) {
  const size_t host = placement[rank];
  const int64_t on_host = machine.repeats ? 1 : std::ranges::count(placement, host);
  return {&machine.hosts[host], on_host, std::max<int64_t>(machine.hosts[host].cores / on_host, 1)};
}

const MeasuredGates* gates_for(const Machine& machine, int64_t ranks) {
  const MeasuredGates* nearest = nullptr;
  for (const MeasuredGates& gates : machine.gates) {
    if (nearest == nullptr || std::abs(gates.ranks - ranks) < std::abs(nearest->ranks - ranks)) nearest = &gates;
  }
  if (nearest == nullptr || nearest->ranks == ranks || unnamed_pair(machine, ranks)) return nearest;
  return nullptr;
}

std::optional<std::pair<int, int>> pair_without_link(const Machine& machine, int64_t ranks) {
  if (machine.link || gates_for(machine, ranks) != nullptr) return std::nullopt;
  return unnamed_pair(machine, ranks);
}

double machine_gate_us(const Machine& machine, std::span<const size_t> placement, double bytes) {
  const auto ranks = static_cast<int64_t>(placement.size());
  if (ranks < 2) return 0;
  if (const MeasuredGates* const gates = gates_for(machine, ranks)) {
    const double exchanges = static_cast<double>(ranks - 1) / static_cast<double>(gates->ranks - 1);
    return interpolate_us(gates->points, bytes) * exchanges;
  }
  double slowest = 0;
  for (int rank = 0; rank < static_cast<int>(ranks); ++rank) {
    double latency = 0, port = 0;
    for (int peer = 0; peer < static_cast<int>(ranks); ++peer) {
      if (peer == rank) continue;
      const LinkNumbers& link = link_between(machine, placement, rank, peer);
      latency = std::max(latency, link.latency_us);
      port += bytes / (link.gb_s * 1e3);
    }
    slowest = std::max(slowest, latency + port);
  }
  return slowest;
}

std::string machine_link_name(const Machine& machine, std::span<const size_t> placement) {
  const auto ranks = static_cast<int64_t>(placement.size());
  if (ranks < 2) return "nothing";
  if (const MeasuredGates* const gates = gates_for(machine, ranks)) return gates->link;
  constexpr double kBytes = 16384;
  const LinkNumbers* slowest = nullptr;
  bool several = false;
  for (int a = 0; a < static_cast<int>(ranks); ++a) {
    for (int b = a + 1; b < static_cast<int>(ranks); ++b) {
      const LinkNumbers& link = link_between(machine, placement, a, b);
      several = several || (slowest != nullptr && link.title != slowest->title);
      if (slowest == nullptr || gate_us(link, 2, kBytes) > gate_us(*slowest, 2, kBytes)) slowest = &link;
    }
  }
  return several ? fmt::format("several links, the slowest {}", slowest->title) : slowest->title;
}

}  // namespace coprime
