// The all-reduces of GPU ranks, every way that there is, checked and timed in one run beside NCCL's: ranks as
// processes, rank r on GPU r mod the number of GPUs; a CUDA graph of many calls, the median of seven replays, the
// slowest rank. A table of microseconds a call comes last; "=" marks what gave wrong sums, and has no time.
#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <functional>
#include <random>

#include "base/number_formats.h"
#include "base/percentile.h"
#include "collective/cuda/gpu_all_reduce.h"
#include "cuda/devices.h"
#include "cuda/nccl.h"
#include "cuda/stream.h"
#include "gate/testing.h"
#include "soak_kernels.h"

namespace coprime {
namespace {

constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr int kReplays = 7, kMaxSizes = 32, kMaxWays = 16, kNoteBytes = 160;
constexpr int64_t kColumns = 5120;  // of the fused norm

struct Options {
  int ranks = 2;
  int calls = 50;
  double throttle_gb_s = 15;
  int timeout_ms = 5000;
  std::string nccl = "libnccl.so.2";
  bool threads = false;
  std::vector<int64_t> kib = {4, 8, 16, 32, 64, 80, 128, 256, 512, 1024, 1280, 2048, 16384, 81920};
};

// One column of the table.
struct Way {
  const char* name;
  const char* row;  // of our table, or null: NCCL
  std::vector<std::pair<const char*, const char*>> environment;
  bool throttled = false;
};
const std::vector<Way>& ways() {
  static const std::vector<Way> all = {
      {"push", "push", {}},
      {"two_shot", "two_shot", {}},
      {"flags", "flags", {}},
      {"push+norm", "push_norm_quant", {}},
      {"wht6", "wht6", {}},
      {"slow flags", "flags", {}, true},
      {"slow wht6", "wht6", {}, true},
      {"nccl", nullptr, {{"NCCL_NVLS_ENABLE", "0"}}},
      {"nccl LL", nullptr, {{"NCCL_NVLS_ENABLE", "0"}, {"NCCL_PROTO", "LL"}}},
      {"nccl sym", nullptr, {{"NCCL_NVLS_ENABLE", "0"}, {"NCCL_SYM_KERNEL", "AllReduce_AGxLL_R"}}},
  };
  return all;
}

// What the processes leave for the table. Zeroed.
struct Results {
  double us[kMaxWays][kMaxSizes];
  bool wrong[kMaxWays][kMaxSizes];
  char notes[kMaxWays][kNoteBytes];
  char gpu[64];
  int gpus;
  int nccl_version;
};

struct RankState {
  RankState(const Options& options, std::shared_ptr<const ShmRegion> region, int rank)
      : board(std::move(region), rank, 30'000),
        device((use_gpu(rank % std::max(count_gpus(), 1)), 0)),
        bytes(static_cast<size_t>(std::ranges::max(options.kib) * kKiB)),
        in(bytes),
        out(bytes),
        other(bytes),
        tally(sizeof(testing::SoakTally)) {
    check_cuda(cudaMemset(tally.data(), 0, tally.size()), "clear a tally");
    check_cuda(cudaDeviceSynchronize(), "clear a tally");
  }
  RankBoard board;
  int device;
  size_t bytes;
  CudaStream stream;
  DeviceMemory in, out, other, tally;

  testing::SoakTally* tally_on_gpu() const { return reinterpret_cast<testing::SoakTally*>(tally.data()); }
  testing::SoakTally take_tally() const {
    testing::SoakTally value;
    stream.synchronize();  // a copy to pageable memory behind a kernel that waits keeps other threads' copies waiting
    check_cuda(cudaMemcpyAsync(&value, tally.data(), sizeof value, cudaMemcpyDeviceToHost, stream.get()),
               "read a tally");
    check_cuda(cudaMemsetAsync(tally.data(), 0, sizeof value, stream.get()), "clear a tally");
    stream.synchronize();
    return value;
  }
};

// Microseconds a call: of each replay the slowest rank's, then the median. One call before lines the ranks up.
double time_calls(RankState& state, int calls, const std::function<void()>& enqueue) {
  enqueue();
  state.stream.synchronize();
  const CudaGraph graph(state.stream, [&] {
    for (int call = 0; call < calls; ++call) enqueue();
  });
  state.board.barrier();
  graph.launch(state.stream);
  state.stream.synchronize();
  std::vector<int64_t> replays_ns;
  for (int replay = 0; replay < kReplays; ++replay) {
    const CudaEvent begin, end;
    state.board.barrier();
    enqueue();
    begin.record(state.stream);
    graph.launch(state.stream);
    end.record(state.stream);
    state.stream.synchronize();
    const std::vector<double> all = state.board.exchange(end.microseconds_since(begin));
    replays_ns.push_back(static_cast<int64_t>(std::ranges::max(all) * 1000 / calls));
  }
  return static_cast<double>(percentile(replays_ns, 0.5)) / 1000;
}

// Fewer calls of what takes long.
int calls_of(const Options& options, const Way& way, int64_t bytes) {
  if (way.throttled) return 1;
  return static_cast<int>(std::clamp<int64_t>(options.calls * kMiB / bytes, 4, options.calls));
}

// The norm's other inputs; the sums of the fused and of the separate way must have the same bytes.
struct NormMemory {
  explicit NormMemory(int64_t rows)
      : residual(static_cast<size_t>(rows * kColumns) * 2),
        codes(static_cast<size_t>(rows * kColumns)),
        scales(static_cast<size_t>(rows) * 4 + 16),
        weight(static_cast<size_t>(kColumns) * 4) {
    const std::vector<float> ones(static_cast<size_t>(kColumns), 1.0f);
    check_cuda(cudaMemcpy(weight.data(), ones.data(), ones.size() * 4, cudaMemcpyHostToDevice), "upload");
    check_cuda(cudaMemset(residual.data(), 0, residual.size()), "clear");
    check_cuda(cudaMemset(scales.data(), 0, scales.size()), "clear");
    check_cuda(cudaDeviceSynchronize(), "clear");
  }
  NormArguments arguments(int64_t rows) const {
    return {.rows = rows,
            .columns = kColumns,
            .residual = reinterpret_cast<uint16_t*>(residual.data()),
            .weight = reinterpret_cast<const float*>(weight.data()),
            .eps = 1e-6f,
            .codes = reinterpret_cast<uint8_t*>(codes.data()),
            .scales = reinterpret_cast<float*>(scales.data())};
  }
  DeviceMemory residual, codes, scales, weight;
};

// Whether a lossy sum is near the exact one, on normal numbers of which each rank has its own.
bool lossy_is_near(RankState& state, GpuAllReduce& reduce, const AllReduceRow& row, int64_t elements) {
  const int64_t looked_at = std::min<int64_t>(elements, 256 * 1024);
  std::mt19937 random(static_cast<uint32_t>(state.board.rank()));
  std::normal_distribution<float> normal;
  std::vector<uint16_t> tile(static_cast<size_t>(looked_at));
  for (uint16_t& value : tile) value = f32_to_bf16(normal(random));
  check_cuda(cudaMemsetAsync(state.in.data(), 0, state.bytes, state.stream.get()), "clear");
  check_cuda(cudaMemcpyAsync(state.in.data(), tile.data(), tile.size() * 2, cudaMemcpyHostToDevice, state.stream.get()),
             "upload");
  const AllReduceRow* const exact = reduce.choose({.type = DType::kBF16, .elements = looked_at}).row;
  const AllReduceCall whole{.type = DType::kBF16, .elements = elements},
      part{.type = DType::kBF16, .elements = looked_at};
  reduce.sum(state.stream.get(), row, whole, state.in.data(), state.out.data());
  reduce.sum(state.stream.get(), *exact, part, state.in.data(), state.other.data());
  std::vector<uint16_t> found(tile.size()), expected(tile.size());
  state.stream.synchronize();
  for (const auto& [host, data] : {std::pair(&found, state.out.data()), std::pair(&expected, state.other.data())})
    check_cuda(cudaMemcpyAsync(host->data(), data, host->size() * 2, cudaMemcpyDeviceToHost, state.stream.get()),
               "download");
  state.stream.synchronize();
  double error = 0, size = 0;
  for (size_t i = 0; i < tile.size(); ++i) {
    const double e = bf16_to_f32(expected[i]), f = bf16_to_f32(found[i]);
    error += (e - f) * (e - f);
    size += e * e;
  }
  return std::sqrt(error / size) < 0.03;
}

void run_ours(const Options& options, RankState& state, GpuAllReduce& reduce, const Way& way, size_t way_index,
              Results& results) {
  const auto row = std::ranges::find(all_reduce_rows(), std::string_view(way.row), &AllReduceRow::name);
  const bool fused = row->method == AllReduceMethod::kPushNormQuant;
  for (size_t i = 0; i < options.kib.size(); ++i) {
    const int64_t bytes = options.kib[i] * kKiB, elements = bytes / 2, rows = elements / kColumns;
    const bool data_is_flag = row->method != AllReduceMethod::kFlags && row->method != AllReduceMethod::kWht6;
    if (data_is_flag && bytes > reduce.world().kept_empty) continue;
    if (options.ranks < row->min_world || bytes < row->min_bytes) continue;
    if (fused && (rows < 1 || elements % kColumns != 0)) continue;
    if (way.throttled && bytes < 16 * kMiB) continue;
    const AllReduceCall call{.type = DType::kBF16, .elements = elements};
    const testing::SoakCall vector{.seed = 7,
                                   .call = static_cast<uint32_t>(i),
                                   .rank = reduce.rank(),
                                   .ranks = reduce.ranks(),
                                   .words = bytes / 16};
    std::unique_ptr<NormMemory> norm, apart;
    if (fused) {
      norm = std::make_unique<NormMemory>(rows);
      apart = std::make_unique<NormMemory>(rows);
    }
    const auto enqueue = [&] {
      fused ? reduce.sum_norm_quant(state.stream.get(), norm->arguments(rows), state.in.data())
            : reduce.sum(state.stream.get(), *row, call, state.in.data(), state.out.data());
    };
    state.board.barrier();
    bool right;
    if (row->exact) {
      testing::fill_vector(state.stream.get(), vector, state.in.data());
      enqueue();
      if (fused) {
        const AllReduceRow* const push = reduce.choose(call).row;
        reduce.sum(state.stream.get(), *push, call, state.in.data(), state.out.data());
        add_norm_quant(state.stream.get(), apart->arguments(rows), state.out.data());
        std::vector<testing::SoakTally> tallies;
        for (const NormMemory* memory : {norm.get(), apart.get()}) {
          for (const DeviceMemory* part : {&memory->residual, &memory->codes, &memory->scales}) {
            testing::hash_words(state.stream.get(), part->data(), static_cast<int64_t>(part->size()) / 16,
                                state.tally_on_gpu());
          }
          tallies.push_back(state.take_tally());
        }
        right = tallies[0].hash == tallies[1].hash;
      } else {
        testing::check_sum(state.stream.get(), vector, state.out.data(), state.tally_on_gpu());
        right = state.take_tally().wrong == 0;
      }
    } else {
      right = lossy_is_near(state, reduce, *row, elements);
    }
    const std::vector<bool> all_right = [&] {
      std::vector<bool> all;
      for (const char one : state.board.exchange(static_cast<char>(right))) all.push_back(one != 0);
      return all;
    }();
    const double us = time_calls(state, calls_of(options, way, bytes), enqueue);
    reduce.check();
    results.us[way_index][i] = us;
    results.wrong[way_index][i] = std::ranges::find(all_right, false) != all_right.end();
    state.board.barrier();  // what this size allocated goes, and nobody waits
  }
}

int run_rank(const Options& options, std::shared_ptr<const ShmRegion> region, int rank, bool throttled,
             const std::vector<size_t>& own_ways, Results& results) {
  RankState state(options, std::move(region), rank);
  GpuAllReduceSettings settings{.limits = all_reduce_limits(options.ranks, true, kFastLink, 0),
                                .timeout_ms = options.timeout_ms,
                                .throttle_gb_s = throttled ? options.throttle_gb_s : 0};
  settings.limits.exact_bytes = settings.limits.lossy_bytes = static_cast<int64_t>(state.bytes);
  GpuAllReduce reduce(state.board, settings);
  if (rank == 0) {
    results.gpus = count_gpus();
    std::snprintf(results.gpu, sizeof results.gpu, "%s", identify_gpu(0).name.c_str());
  }
  for (const size_t way : own_ways) run_ours(options, state, reduce, ways()[way], way, results);
  cudaDeviceSynchronize();
  state.board.barrier();
  return 0;
}

int run_nccl(const Options& options, std::shared_ptr<const ShmRegion> region, int rank, size_t way, Results& results) {
  for (const auto& [name, value] : ways()[way].environment) ::setenv(name, value, 1);
  RankState state(options, std::move(region), rank);
  const auto library = NcclLibrary::load(options.nccl);
  if (rank == 0) results.nccl_version = library->version();
  const NcclId mine = rank == 0 ? library->make_id() : NcclId{};
  const NcclCommunicator nccl(library, state.board.exchange(mine)[0], rank, options.ranks);
  for (size_t i = 0; i < options.kib.size(); ++i) {
    const int64_t bytes = options.kib[i] * kKiB;
    check_cuda(cudaMemset(state.in.data(), 0, state.bytes), "clear");
    const double us = time_calls(state, calls_of(options, ways()[way], bytes), [&] {
      nccl.all_reduce(state.in.data(), state.out.data(), bytes / 2, NcclType::kBF16, state.stream.get());
    });
    results.us[way][i] = us;
  }
  return 0;
}

// Runs the ranks as processes; what went wrong goes to the notes of the ways.
void run_world(const Options& options, Results& results, const std::vector<size_t>& own_ways,
               const std::function<int(std::shared_ptr<const ShmRegion>, int)>& body) {
  const auto region = RankBoard::make_region(options.ranks);
  const auto run_one = [&](int rank) {
    try {
      return body(region, rank);
    } catch (const std::exception& error) {
      for (const size_t way : own_ways) std::snprintf(results.notes[way], kNoteBytes, "%s", error.what());
      return 1;
    }
  };
  if (options.threads) {  // in one process, which this one must not be: it would have CUDA before the next fork
    testing::run_processes(1, [&](int) {
      ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);  // nothing is loaded while a rank waits
      testing::run_threads(options.ranks, run_one);
      return 0;
    });
  } else {
    testing::run_processes(options.ranks, run_one);
  }
}

void print_table(const Options& options, const Results& results) {
  const std::time_t now = std::time(nullptr);
  char day[16];
  std::strftime(day, sizeof day, "%Y-%m-%d", std::gmtime(&now));
  for (size_t way = 0; way < ways().size(); ++way) {
    if (results.notes[way][0] != 0) fmt::print("{}: not run: {}\n", ways()[way].name, results.notes[way]);
  }
  fmt::print(
      "\n{} ranks as {} on {} x {}, bf16, us a call in a graph, median of {} replays, NCCL {}, {}; slow: pushes "
      "at {} GB/s\n",
      options.ranks, options.threads ? "threads" : "processes", results.gpus, results.gpu, kReplays,
      results.nccl_version, day, options.throttle_gb_s);
  if (results.gpus < options.ranks)
    fmt::print("ranks share GPUs{}: these times say nothing about links\n", options.threads ? "" : " and take turns");
  fmt::print("{:>9}", "KiB");
  for (const Way& way : ways()) fmt::print("{:>12}", way.name);
  fmt::print("{:>12}\n", "push/nccl");
  for (size_t i = 0; i < options.kib.size(); ++i) {
    fmt::print("{:>9}", options.kib[i]);
    for (size_t way = 0; way < ways().size(); ++way) {
      const double us = results.us[way][i];
      fmt::print("{:>12}", results.wrong[way][i] ? "=" : us > 0 ? fmt::format("{:.2f}", us) : "-");
    }
    const double best = results.us[0][i] > 0 ? results.us[0][i] : results.us[2][i], nccl = results.us[7][i];
    fmt::print("{:>12}\n", best > 0 && nccl > 0 ? fmt::format("{:.2f}", best / nccl) : "-");
  }
}

void run_bench(const Options& options) {
  if (options.kib.size() > kMaxSizes || options.ranks < 2 || options.ranks > kMaxGpuRanks)
    fail(ErrorKind::kUsage, "expected 2 to {} ranks and up to {} sizes", kMaxGpuRanks, kMaxSizes);
  auto* const results = static_cast<Results*>(
      ::mmap(nullptr, sizeof(Results), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (results == MAP_FAILED) fail(ErrorKind::kInternal, "no memory for the results");
  for (const bool throttled : {false, true}) {
    std::vector<size_t> own_ways;
    for (size_t way = 0; way < ways().size(); ++way) {
      if (ways()[way].row != nullptr && ways()[way].throttled == throttled) own_ways.push_back(way);
    }
    run_world(options, *results, own_ways, [&](std::shared_ptr<const ShmRegion> region, int rank) {
      return run_rank(options, std::move(region), rank, throttled, own_ways, *results);
    });
  }
  for (size_t way = 0; way < ways().size(); ++way) {
    if (ways()[way].row != nullptr) continue;
    run_world(options, *results, {way}, [&](std::shared_ptr<const ShmRegion> region, int rank) {
      return run_nccl(options, std::move(region), rank, way, *results);
    });
  }
  print_table(options, *results);
  ::munmap(results, sizeof(Results));
}

}  // namespace
}  // namespace coprime

int main(int argc, char** argv) {
  coprime::Options options;
  CLI::App app{"Times the all-reduces of GPU ranks beside NCCL's"};
  app.add_option("--ranks", options.ranks, "ranks, 2 to 8");
  app.add_option("--kib", options.kib, "sizes in KiB, bf16")->delimiter(',');
  app.add_option("--calls", options.calls, "calls in a graph");
  app.add_option("--throttle", options.throttle_gb_s, "GB/s of the slow link");
  app.add_option("--timeout-ms", options.timeout_ms, "of a call");
  app.add_option("--nccl", options.nccl, "NCCL's file");
  app.add_flag("--threads", options.threads,
               "ranks as threads of one process: where they share a GPU they run at once");
  CLI11_PARSE(app, argc, argv);
  try {
    coprime::run_bench(options);
  } catch (const coprime::Error& error) {
    std::fprintf(stderr, "allreduce_bench: %s\n", error.what());
    return exit_code(error.kind());
  }
  return 0;
}
