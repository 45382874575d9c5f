#include "tools/gpu_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "collective/all_reduce/table.h"
#include "tools/link_words.h"

namespace coprime {
namespace {

constexpr double kLowDuplex = 0.6;

double slower_way(const GpuPairFigures& pair) { return std::min(pair.push_gb_s, pair.push_back_gb_s); }

std::string port_text(const GpuPort& port) {
  const auto known = [](int value) { return value < 0 ? std::string("?") : std::to_string(value); };
  return fmt::format("GPU {}: {} at {}, PCIe {} x{} (it can do {} x{}), {} NVLinks up\n", port.gpu, port.name,
                     port.pci_address, known(port.pcie_generation), known(port.pcie_width), known(port.most_generation),
                     known(port.most_width), known(port.nvlinks));
}

}  // namespace

double slowest_gpu_link(const GpuLinkFigures& figures) {
  double slowest = 0;
  for (const GpuPairFigures& pair : figures.pairs) {
    if (pair.same_gpu || !pair.peer_access) continue;
    slowest = slowest == 0 ? slower_way(pair) : std::min(slowest, slower_way(pair));
  }
  return slowest;
}

std::vector<std::string> gpu_link_advice(const GpuLinkFigures& figures) {
  std::vector<std::string> lines;
  bool all_reach = true, all_share = true;
  for (const GpuPairFigures& pair : figures.pairs) {
    if (!pair.same_gpu) all_share = false;
    if (!pair.peer_access) {
      all_reach = false;
      lines.push_back(
          fmt::format("ranks {} and {} do not reach each other's memory: all-reduces go by the library (NCCL); "
                      "look for ACS or an IOMMU between the two slots",
                      pair.from, pair.to));
    } else if (!pair.same_gpu && pair.duplex_efficiency < kLowDuplex) {
      lines.push_back(
          fmt::format("ranks {} and {} reach {:.0f}% of both ways alone when both push at once: for large "
                      "vectors a hub, which goes one way after the other, would cost no more than one-shot",
                      pair.from, pair.to, 100 * pair.duplex_efficiency));
    }
  }
  for (const GpuPort& port : figures.ports) {
    if (port.nvlinks > 0 || port.pcie_width < 0 || port.pcie_width >= port.most_width) continue;
    lines.push_back(
        fmt::format("GPU {} has {} of {} PCIe lanes: look at the slot, the riser, and what shares its lanes", port.gpu,
                    port.pcie_width, port.most_width));
  }
  if (all_share) {
    lines.push_back("all ranks share one GPU: there is no link to measure; the figures are of its own memory");
    return lines;
  }
  if (!all_reach) return lines;
  const double slowest = slowest_gpu_link(figures);
  const AllReduceLimits limits = all_reduce_limits(figures.ranks, true, slowest, kGpuPushBytes);
  lines.push_back(fmt::format("the slowest link pushes {:.1f} GB/s: exact all-reduces up to {}, {}", slowest,
                              bytes_text(limits.exact_bytes),
                              limits.lossy_bytes > 0 ? "wht6 allowed where it is asked for"
                                                     : fmt::format("no wht6 below {:.0f} GB/s", kFastLink)));
  return lines;
}

std::string gpu_link_text(const GpuLinkFigures& figures) {
  std::string text = fmt::format("{} ranks, rank r on GPU r mod {}\n", figures.ranks, figures.ports.size());
  for (const GpuPort& port : figures.ports) text += port_text(port);
  text +=
      fmt::format("\n{:>10}{:>14}{:>14}{:>12}{:>14}\n", "ranks", "push GB/s", "back GB/s", "both/each", "flag trip us");
  for (const GpuPairFigures& pair : figures.pairs) {
    const std::string name = fmt::format("{}-{}{}", pair.from, pair.to, pair.same_gpu ? "*" : "");
    if (pair.peer_access) {
      text += fmt::format("{:>10}{:>14.1f}{:>14.1f}{:>12.2f}{:>14.2f}\n", name, pair.push_gb_s, pair.push_back_gb_s,
                          pair.duplex_efficiency, pair.round_trip_us);
    } else {
      text += fmt::format("{:>10}  no peer access\n", name);
    }
  }
  if (std::ranges::any_of(figures.pairs, &GpuPairFigures::same_gpu)) text += "(* share a GPU)\n";
  if (!figures.patterns.empty()) {
    text += fmt::format("\nevery rank pushes to all {} others at once\n{:>10}{:>12}{:>18}\n", figures.ranks - 1,
                        "bytes", "us", "GB/s out of each");
  }
  for (const GpuPatternFigures& pattern : figures.patterns) {
    text += fmt::format("{:>10}{:>12.2f}{:>18.1f}\n", bytes_text(pattern.bytes), pattern.us,
                        static_cast<double>(pattern.bytes * (figures.ranks - 1)) / pattern.us / 1000);
  }
  text += "\n";
  for (const std::string& line : gpu_link_advice(figures)) text += "- " + line + "\n";
  return text;
}

std::string gpu_link_json(const GpuLinkFigures& figures) {
  using nlohmann::json;
  json ports = json::array(), pairs = json::array(), patterns = json::array();
  for (const GpuPort& port : figures.ports) {
    ports.push_back({{"gpu", port.gpu},
                     {"name", port.name},
                     {"pci_address", port.pci_address},
                     {"pcie_generation", port.pcie_generation},
                     {"pcie_width", port.pcie_width},
                     {"most_pcie_generation", port.most_generation},
                     {"most_pcie_width", port.most_width},
                     {"nvlinks", port.nvlinks}});
  }
  for (const GpuPairFigures& pair : figures.pairs) {
    pairs.push_back({{"from", pair.from},
                     {"to", pair.to},
                     {"same_gpu", pair.same_gpu},
                     {"peer_access", pair.peer_access},
                     {"push_gb_s", pair.push_gb_s},
                     {"push_back_gb_s", pair.push_back_gb_s},
                     {"duplex_efficiency", pair.duplex_efficiency},
                     {"round_trip_us", pair.round_trip_us}});
  }
  for (const GpuPatternFigures& pattern : figures.patterns)
    patterns.push_back({{"bytes", pattern.bytes}, {"us", pattern.us}});
  return json{{"ranks", figures.ranks},
              {"gpus", ports},
              {"pairs", pairs},
              {"patterns", patterns},
              {"slowest_gb_s", slowest_gpu_link(figures)},
              {"advice", gpu_link_advice(figures)}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace coprime
