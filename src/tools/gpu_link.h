// Gate M for GPUs: what joins every pair of GPU ranks, the one-shot pattern of all of them, and what follows from it.
// measure_gpu_links() is in cuda/; the rest is computed from the figures alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace coprime {

inline constexpr int64_t kGpuPushBytes = 64 << 20;  // of a bandwidth figure

// A GPU's way to the others, as its driver tells; -1: not known.
struct GpuPort {
  int gpu = 0;
  std::string name, pci_address;
  int pcie_generation = -1, pcie_width = -1, most_generation = -1, most_width = -1;  // negotiated, and what it can do
  int nvlinks = -1;                                                                  // that are up
};

struct GpuPairFigures {  // ranks `from` < `to`
  int from = 0, to = 0;
  bool same_gpu = false;     // they share one: its memory's figures, no link's
  bool peer_access = false;  // what each pushed came, and each saw the other's flag; else nothing below is known
  double push_gb_s = 0, push_back_gb_s = 0;
  double duplex_efficiency = 0;  // both at once over the sum of each alone
  double round_trip_us = 0;      // of a flag
};

struct GpuPatternFigures {  // every rank pushes so many bytes to all others at once
  int64_t bytes = 0;
  double us = 0;  // of the slowest rank
};

struct GpuLinkFigures {
  int ranks = 0;
  std::vector<GpuPort> ports;  // by GPU; rank r is on GPU r mod their number
  std::vector<GpuPairFigures> pairs;
  std::vector<GpuPatternFigures> patterns;
};

struct GpuLinkOptions {
  int ranks = 0;            // 0: one for each GPU
  int timeout_ms = 60'000;  // a wrong PCIe setup can hang what touches a peer's memory: it is done in a child
};

// Error(kUsage) where coprime was built without CUDA, where there is no GPU, or for ranks that are not 2 to 8;
// Error(kLink) when the child does not end in time.
GpuLinkFigures measure_gpu_links(const GpuLinkOptions& options);

// The slowest way between two ranks of different GPUs that reach each other; 0: there is none.
double slowest_gpu_link(const GpuLinkFigures& figures);

// One line each: what was seen, and what to do. The thresholds are those of all_reduce_limits(), and 0.6 of duplex.
std::vector<std::string> gpu_link_advice(const GpuLinkFigures& figures);

std::string gpu_link_text(const GpuLinkFigures& figures);
std::string gpu_link_json(const GpuLinkFigures& figures);

}  // namespace coprime
