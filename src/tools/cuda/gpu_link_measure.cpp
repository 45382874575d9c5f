// Measures in a child process, which leaves its figures in shared memory: what touches a peer's memory may never
// return.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/percentile.h"
#include "collective/all_reduce/slab_layout.h"
#include "cuda/devices.h"
#include "cuda/memory.h"
#include "cuda/nvml.h"
#include "cuda/stream.h"
#include "tools/cuda/link_kernels.h"
#include "tools/gpu_link.h"

namespace coprime {
namespace {

constexpr int kRepeats = 5, kRounds = 1000;
constexpr int64_t kPatternBytes[] = {8 << 10, 80 << 10, 1280 << 10, 16 << 20};
constexpr uint64_t kPingTimeoutNs = 2'000'000'000;

// One rank: its GPU, a stream there, what it sends, and a region for each peer to push into.
struct Rank {
  Rank(int rank, int ranks, int gpus) : gpu((use_gpu(rank % gpus), rank % gpus)), from(kGpuPushBytes), words(4096) {
    for (int peer = 0; peer < ranks; ++peer) regions.emplace_back(peer == rank ? 256 : kGpuPushBytes);
    check_cuda(cudaMemset(from.data(), rank + 1, from.size()), "fill memory");
    check_cuda(cudaMemset(words.data(), 0, words.size()), "clear memory");
    check_cuda(load_link_kernels(), "load a kernel");
    check_cuda(cudaDeviceSynchronize(), "fill memory");
  }
  int gpu;
  CudaStream stream;
  CudaEvent begin, end;
  DeviceMemory from, words;
  std::vector<DeviceMemory> regions;  // by sender
  PinnedValue<uint64_t> took_ns;

  uint32_t* word(int peer) const { return reinterpret_cast<uint32_t*>(words.data() + 128 * peer); }
};

bool enable_access(const Rank& from, const Rank& to) {
  if (from.gpu == to.gpu) return true;
  use_gpu(from.gpu);
  const cudaError_t status = cudaDeviceEnablePeerAccess(to.gpu, 0);
  cudaGetLastError();
  return status == cudaSuccess || status == cudaErrorPeerAccessAlreadyEnabled;
}

// Microseconds of the slowest of pushes that begin together: the median.
double time_pushes(const std::vector<std::pair<Rank*, PushTargets>>& pushes, int64_t bytes) {
  std::vector<int64_t> times_ns;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    for (const auto& [rank, targets] : pushes) {
      use_gpu(rank->gpu);
      rank->begin.record(rank->stream);
      check_cuda(push_bytes(rank->stream.get(), rank->from.data(), targets, bytes), "launch a push");
      rank->end.record(rank->stream);
    }
    double slowest = 0;
    for (const auto& [rank, targets] : pushes) {
      use_gpu(rank->gpu);
      rank->stream.synchronize();
      slowest = std::max(slowest, rank->end.microseconds_since(rank->begin));
    }
    if (repeat > 0) times_ns.push_back(static_cast<int64_t>(slowest * 1000));  // the first one warms up
  }
  return static_cast<double>(percentile(times_ns, 0.5)) / 1000;
}

PushTargets to_one(Rank& to, int from) { return {{to.regions[static_cast<size_t>(from)].data()}, 1}; }

// Whether what a push left is there.
bool came(const Rank& to, int from) {
  std::array<unsigned char, 64> bytes;
  use_gpu(to.gpu);
  const std::byte* const last = to.regions[static_cast<size_t>(from)].data() + kGpuPushBytes - 64;
  check_cuda(cudaMemcpy(bytes.data(), last, bytes.size(), cudaMemcpyDeviceToHost), "read what was pushed");
  return std::ranges::all_of(bytes, [&](unsigned char byte) { return byte == from + 1; });
}

double time_round_trip(Rank& a, Rank& b, int a_index, int b_index) {
  uint32_t *const of_a = a.word(b_index), *const of_b = b.word(a_index);
  use_gpu(b.gpu);
  check_cuda(play_ping_pong(b.stream.get(), of_b, of_a, false, kRounds, kPingTimeoutNs, b.took_ns.get()), "launch");
  use_gpu(a.gpu);
  check_cuda(play_ping_pong(a.stream.get(), of_a, of_b, true, kRounds, kPingTimeoutNs, a.took_ns.get()), "launch");
  a.stream.synchronize();
  use_gpu(b.gpu);
  b.stream.synchronize();
  return static_cast<double>(*a.took_ns.get()) / (kRounds - 1) / 1000;
}

GpuPairFigures measure_pair(std::vector<std::unique_ptr<Rank>>& ranks, int from, int to) {
  Rank &a = *ranks[static_cast<size_t>(from)], &b = *ranks[static_cast<size_t>(to)];
  GpuPairFigures figures{.from = from, .to = to, .same_gpu = a.gpu == b.gpu};
  if (!enable_access(a, b) || !enable_access(b, a)) return figures;
  const PushTargets forth = to_one(b, from), back = to_one(a, to);
  const auto rate = [](double us) { return static_cast<double>(kGpuPushBytes) / us / 1000; };
  figures.push_gb_s = rate(time_pushes({{&a, forth}}, kGpuPushBytes));
  figures.push_back_gb_s = rate(time_pushes({{&b, back}}, kGpuPushBytes));
  const double both = 2 * rate(time_pushes({{&a, forth}, {&b, back}}, kGpuPushBytes));
  figures.duplex_efficiency = both / (figures.push_gb_s + figures.push_back_gb_s);
  figures.round_trip_us = time_round_trip(a, b, from, to);
  figures.peer_access = came(b, from) && came(a, to) && figures.round_trip_us > 0;
  return figures;
}

GpuLinkFigures measure(GpuLinkOptions options) {
  const int gpus = count_gpus();
  if (gpus == 0) fail(ErrorKind::kUsage, "no GPU is here, or its driver does not answer: see nvidia-smi");
  const int count = options.ranks > 0 ? options.ranks : gpus;
  if (count < 2 || count > kMaxGpuRanks) {
    fail(ErrorKind::kUsage, "{} GPU rank{} on {} GPU{}: expected 2 to {}; give --ranks", count, count == 1 ? "" : "s",
         gpus, gpus == 1 ? "" : "s", kMaxGpuRanks);
  }
  GpuLinkFigures figures{.ranks = count};
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < count; ++rank) ranks.push_back(std::make_unique<Rank>(rank, count, gpus));
  bool all_reach = true;
  for (int from = 0; from < count; ++from) {
    for (int to = from + 1; to < count; ++to) {
      figures.pairs.push_back(measure_pair(ranks, from, to));
      all_reach = all_reach && figures.pairs.back().peer_access;
    }
  }
  for (const int64_t bytes : kPatternBytes) {
    if (!all_reach) break;
    std::vector<std::pair<Rank*, PushTargets>> pushes;
    for (int rank = 0; rank < count; ++rank) {
      PushTargets targets;
      for (int peer = 0; peer < count; ++peer) {
        if (peer == rank) continue;
        targets.memory[targets.count++] = ranks[static_cast<size_t>(peer)]->regions[static_cast<size_t>(rank)].data();
      }
      pushes.emplace_back(ranks[static_cast<size_t>(rank)].get(), targets);
    }
    figures.patterns.push_back({bytes, time_pushes(pushes, bytes)});
  }
  for (int gpu = 0; gpu < std::min(gpus, count); ++gpu) {  // now that they have been busy
    const GpuIdentity identity = identify_gpu(gpu);
    const GpuPortState port = read_gpu_port(identity.pci_address);
    figures.ports.push_back({gpu, identity.name, identity.pci_address, port.pcie_generation, port.pcie_width,
                             port.most_generation, port.most_width, port.nvlinks});
  }
  return figures;
}

// What the child leaves for its parent.
struct Left {
  struct Port {
    GpuPortState state;
    char name[64], address[32];
  };
  int ranks, ports, pairs, patterns;
  Port port[kMaxGpuRanks];
  GpuPairFigures pair[kMaxGpuRanks * (kMaxGpuRanks - 1) / 2];
  GpuPatternFigures pattern[std::size(kPatternBytes)];
  ErrorKind kind;
  char error[512];  // "": none
};

void leave(const GpuLinkFigures& figures, Left& left) {
  left.ranks = figures.ranks;
  for (const GpuPort& port : figures.ports) {
    Left::Port& out = left.port[left.ports++];
    out.state = {port.pcie_generation, port.pcie_width, port.most_generation, port.most_width, port.nvlinks};
    std::snprintf(out.name, sizeof out.name, "%s", port.name.c_str());
    std::snprintf(out.address, sizeof out.address, "%s", port.pci_address.c_str());
  }
  for (const GpuPairFigures& pair : figures.pairs) left.pair[left.pairs++] = pair;
  for (const GpuPatternFigures& pattern : figures.patterns) left.pattern[left.patterns++] = pattern;
}

GpuLinkFigures take(const Left& left) {
  GpuLinkFigures figures{.ranks = left.ranks};
  for (int gpu = 0; gpu < left.ports; ++gpu) {
    const auto& [state, name, address] = left.port[gpu];
    figures.ports.push_back({gpu, name, address, state.pcie_generation, state.pcie_width, state.most_generation,
                             state.most_width, state.nvlinks});
  }
  figures.pairs.assign(left.pair, left.pair + left.pairs);
  figures.patterns.assign(left.pattern, left.pattern + left.patterns);
  return figures;
}

[[noreturn]] void run_child(const GpuLinkOptions& options, Left& left) {
  try {
    leave(measure(options), left);
  } catch (const Error& error) {
    left.kind = error.kind();
    std::snprintf(left.error, sizeof left.error, "%s", error.what());
  }
  ::_exit(0);
}

// The child's status, or nothing when it was killed since it did not end in time.
std::optional<int> wait_for(pid_t child, int timeout_ms) {
  const int64_t end_us = now_us() + int64_t{1000} * timeout_ms;
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (now_us() > end_us) {
      ::kill(child, SIGKILL);  // a child that hangs inside the driver may outlive even this: it is not waited for
      return std::nullopt;
    }
    ::usleep(10'000);
  }
  return status;
}

}  // namespace

GpuLinkFigures measure_gpu_links(const GpuLinkOptions& options) {
  void* const memory = ::mmap(nullptr, sizeof(Left), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail(ErrorKind::kInternal, "no memory for the figures: {}", errno_text(errno));
  auto* const left = new (memory) Left{};
  const auto unmap = [](Left* page) { ::munmap(page, sizeof(Left)); };
  const std::unique_ptr<Left, decltype(unmap)> page(left, unmap);
  const pid_t child = ::fork();
  if (child < 0) fail(ErrorKind::kInternal, "could not start a process: {}", errno_text(errno));
  if (child == 0) run_child(options, *left);
  const std::optional<int> status = wait_for(child, options.timeout_ms);
  if (!status) {
    fail(ErrorKind::kLink,
         "measuring the GPUs took more than {} ms: peer access hangs on this host; look for ACS and the "
         "IOMMU in the firmware, and use the library's all-reduce",
         options.timeout_ms);
  }
  if (left->error[0] != 0) fail(left->kind, "{}", left->error);
  if (!WIFEXITED(*status)) {
    fail(ErrorKind::kLink, "measuring the GPUs ended by signal {}: see the kernel's log (dmesg) for Xid lines",
         WTERMSIG(*status));
  }
  return take(*left);
}

}  // namespace coprime
