// Products with quantised weights beside the limits of this machine, measured in the same run: a plain read of as many
// packed bytes for one row (decode), and the rate of the instructions that a panel needs for many rows (prefill).
//
// Prints one line a case. Rates are of the fastest pass, the one that others on the machine disturbed least; a pass of
// the product and one of its limit take turns.
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <random>

#include "base/error.h"
#include "device/cpu/worker_pool.h"
#include "device/quant/quant_kernels.h"
#include "device/quant/quant_layout.h"
#include "packing_rate.h"
#include "tensor/buffer.h"
#include "tools/plain_read.h"

namespace coprime {
namespace {

struct Options {
  int threads = 1, passes = 0;
  int64_t rows = 0;
  int64_t dram_mib = 256, cache_mib = 6;
  std::string isa = "amx", type = "all", cases = "all";
  bool avx_vnni = true;
};

// A thread's own CPU time, so that other work on the machine does not count.
double thread_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Runs jobs on all threads and counts what each spends in them.
class Stopwatch {
 public:
  explicit Stopwatch(WorkerPool& pool) : pool_(pool), spent_(static_cast<size_t>(pool.threads())) {}
  template <class Job>
  void run(const Job& job) {
    pool_.run([&](int thread) {
      const double start = thread_seconds();
      job(thread);
      spent_[static_cast<size_t>(thread)] += thread_seconds() - start;
    });
  }
  // Of the thread that spent most.
  double seconds() const { return *std::max_element(spent_.begin(), spent_.end()); }

 private:
  WorkerPool& pool_;
  std::vector<double> spent_;
};

double fastest(const std::vector<double>& times) { return *std::min_element(times.begin(), times.end()); }

// ---- the limit of prefill

constexpr int64_t kPeakSteps = 100'000;
constexpr int kPeakChains = 12;

// Products of 16-bit integers, pair by pair, each followed by its addition: what AVX2 has.
void pairs_avx2() {
  for (int64_t i = 0; i < kPeakSteps; ++i) {
    asm volatile(
        ".irp sum, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11\n"
        "vpmaddwd %%ymm12, %%ymm13, %%ymm14\n"
        "vpaddd %%ymm14, %%ymm\\sum, %%ymm\\sum\n"
        ".endr" ::
            : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
              "xmm14");
  }
}

void pairs_avx512_vnni() {
  for (int64_t i = 0; i < kPeakSteps; ++i) {
    asm volatile(
        ".irp sum, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11\n"
        "vpdpwssd %%zmm12, %%zmm13, %%zmm\\sum\n"
        ".endr" ::
            : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11");
  }
}

struct Peak {
  void (*fn)();
  double operations;  // of a call
};
Peak peak_of(const QuantKernelRow& kernel) {
  const double calls = 2.0 * kPeakChains * kPeakSteps;
  return kernel.features.avx512_vnni ? Peak{pairs_avx512_vnni, calls * 32} : Peak{pairs_avx2, calls * 16};
}

// ---- products

struct Matrix {
  DType type;
  int64_t rows, blocks;
  Buffer tiles;
  int64_t bytes() const { return static_cast<int64_t>(tiles.size()); }
};

// Any bytes are blocks of some weights. These are scales of 2^-14 to 2 in f16, and of 2^-16 to 2^-1 in e8m0: numbers so
// small that a CPU takes long for them would be measured otherwise.
Matrix random_matrix(DType type, int64_t rows, int64_t columns) {
  Matrix made{type, rows, columns / kQuantBlock, {}};
  made.tiles = Buffer(static_cast<size_t>(quant_tiles(rows) * quant_tile_bytes(type, made.blocks)));
  std::minstd_rand random(static_cast<uint32_t>(rows * 31 + columns));
  const int first = quant_format(type).e8m0 ? 0x70 : 0x04, last = quant_format(type).e8m0 ? 0x0f : 0x3b;
  for (size_t i = 0; i < made.tiles.size(); ++i) {
    made.tiles.data()[i] = static_cast<std::byte>(first | (static_cast<int>(random() >> 8) & last));
  }
  return made;
}

// As many matrices of a 27B layer's width as make the bytes.
std::vector<Matrix> matrices(DType type, int64_t mib) {
  std::vector<Matrix> made;
  const int64_t columns = 5120, row_bytes = quant_tile_bytes(type, columns / kQuantBlock) / kQuantRows;
  for (int64_t left = mib << 20; left > 0; left -= 2048 * row_bytes) {
    made.push_back(random_matrix(type, std::min<int64_t>(2048, (left / row_bytes + 15) / 16 * 16), columns));
  }
  return made;
}

class Runner {
 public:
  Runner(WorkerPool& pool, const QuantKernelRow& kernel, MathMode math, const std::vector<Matrix>& weights,
         int64_t rows)
      : pool_(pool), kernel_(kernel), weights_(weights) {
    int64_t outputs = 0;
    for (const Matrix& weight : weights) outputs = std::max(outputs, weight.rows);
    const int64_t blocks = weights.front().blocks;
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    x_.resize(static_cast<size_t>(rows * blocks * kQuantBlock));
    for (float& value : x_) value = normal(random);
    y_.resize(static_cast<size_t>(rows * outputs));
    quantised_ = {nullptr, rows, blocks, kernel.functions.form(math, rows)};
    memory_ = Buffer(static_cast<size_t>(rows * quantised_.row_bytes()));
    quantised_.data = memory_.data();
    quantise_ = {make_view(x_.data(), rows, blocks * kQuantBlock), math, quantised_, 0, rows};
  }

  // Rounds the inputs and multiplies; returns the seconds.
  double pass() {
    Stopwatch watch(pool_);
    const int64_t rows = quantised_.rows;
    if (rows > 1) {
      watch.run([&](int thread) {
        QuantiseWork part = quantise_;
        part.first = rows * thread / pool_.threads();
        part.last = rows * (thread + 1) / pool_.threads();
        kernel_.functions.quantise(part);
      });
    } else {
      watch.run([&](int thread) {
        if (thread == 0) kernel_.functions.quantise(quantise_);
      });
    }
    for (const Matrix& weight : weights_) {
      const int64_t tiles = quant_tiles(weight.rows);
      watch.run([&](int thread) {
        QuantWork work{
            weight.tiles.data(), nullptr, weight.rows, 0, 0, quantised_, make_view(y_.data(), rows, weight.rows)};
        work.first_tile = tiles * thread / pool_.threads();
        work.last_tile = tiles * (thread + 1) / pool_.threads();
        kernel_.functions.multiply(work);
      });
    }
    return watch.seconds();
  }

 private:
  WorkerPool& pool_;
  const QuantKernelRow& kernel_;
  const std::vector<Matrix>& weights_;
  std::vector<float> x_, y_;
  QuantActivations quantised_;
  QuantiseWork quantise_;
  Buffer memory_;
};

int repetitions(const Options& options, double expected_seconds) {
  return options.passes > 0 ? options.passes : std::clamp(static_cast<int>(1.0 / expected_seconds), 5, 2000);
}

void decode(WorkerPool& pool, const QuantKernelRow& kernel, MathMode math, const std::vector<Matrix>& weights,
            const char* name, int64_t rows, const Options& options) {
  Runner runner(pool, kernel, math, weights, rows);
  double bytes = 0;
  for (const Matrix& weight : weights) bytes += static_cast<double>(weight.bytes());
  std::vector<double> product_times, read_times;
  volatile uint64_t sink = 0;
  runner.pass();
  const int passes = repetitions(options, bytes / 10e9);
  for (int i = 0; i < passes; ++i) {
    product_times.push_back(runner.pass());
    Stopwatch watch(pool);
    watch.run([&](int thread) {
      uint64_t total = 0;
      for (const Matrix& weight : weights) {
        const size_t share = weight.tiles.size() / static_cast<size_t>(pool.threads());
        total ^= read_bytes(weight.tiles.data() + share * static_cast<size_t>(thread), share);
      }
      if (thread == 0) sink = total;
    });
    read_times.push_back(watch.seconds());
  }
  const double product_rate = bytes / fastest(product_times) * 1e-9, read_rate = bytes / fastest(read_times) * 1e-9;
  std::printf(
      "quant_bench case=decode set=%s kernel=\"%s\" math=%s rows=%lld threads=%d mb=%.1f gb_s=%.2f "
      "plain_read_gb_s=%.2f "
      "ratio=%.3f\n",
      name, kernel.name, math_name(math), static_cast<long long>(rows), pool.threads(), bytes * 1e-6, product_rate,
      read_rate, product_rate / read_rate);
}

void prefill(WorkerPool& pool, const QuantKernelRow& kernel, MathMode math, int64_t outputs, int64_t columns,
             int64_t rows, const Options& options) {
  std::vector<Matrix> weights;
  weights.push_back(random_matrix(kernel.type, outputs, columns));
  Runner runner(pool, kernel, math, weights, rows);
  const double operations =
      2.0 * static_cast<double>(outputs) * static_cast<double>(columns) * static_cast<double>(rows);
  const Peak peak = peak_of(kernel);
  std::vector<double> product_times, peak_times;
  runner.pass();
  const int passes = repetitions(options, operations / 100e9);
  for (int i = 0; i < passes; ++i) {
    product_times.push_back(runner.pass());
    Stopwatch watch(pool);
    watch.run([&](int) { peak.fn(); });
    peak_times.push_back(watch.seconds());
  }
  const double rate = operations / fastest(product_times) * 1e-9;
  const double limit = peak.operations * pool.threads() / fastest(peak_times) * 1e-9;
  std::printf(
      "quant_bench case=prefill shape=%lldx%lld rows=%lld kernel=\"%s\" math=%s threads=%d gop_s=%.1f "
      "split_peak_gop_s=%.1f ratio=%.3f\n",
      static_cast<long long>(outputs), static_cast<long long>(columns), static_cast<long long>(rows), kernel.name,
      math_name(math), pool.threads(), rate, limit, rate / limit);
}

void decode_cases(WorkerPool& pool, const QuantKernelRow& kernel, const Options& options) {
  {
    const std::vector<Matrix> large = matrices(kernel.type, options.dram_mib);
    decode(pool, kernel, MathMode::kSplit, large, "memory", 1, options);
  }
  const std::vector<Matrix> cached = matrices(kernel.type, options.cache_mib);
  for (MathMode math : {MathMode::kSplit, MathMode::kFast}) decode(pool, kernel, math, cached, "cache", 1, options);
  for (int64_t rows : {2, 4, 8}) decode(pool, kernel, MathMode::kSplit, cached, "cache", rows, options);
}

void prefill_cases(WorkerPool& pool, const QuantKernelRow& kernel, const Options& options) {
  for (MathMode math : {MathMode::kSplit, MathMode::kFast}) {
    if (options.rows > 0) {
      prefill(pool, kernel, math, 2048, 5120, options.rows, options);
      continue;
    }
    const bool whole = quant_format(kernel.type).super();  // columns in blocks of 256
    prefill(pool, kernel, math, 1536, whole ? 512 : 576, 512, options);
    prefill(pool, kernel, math, 2048, 5120, 128, options);
  }
}

void run(const Options& options) {
  CpuFeatures features = cpu_features();
  features.avx_vnni = features.avx_vnni && options.avx_vnni;
  const Isa isa = best_isa(options.isa == "avx2" ? Isa::kAvx2 : options.isa == "avx512" ? Isa::kAvx512 : Isa::kAmx);
  if (isa == Isa::kReference)
    fail(ErrorKind::kUsage, "this CPU has no AVX2 with FMA and F16C: there is nothing to measure");
  WorkerPool pool(options.threads, {});
  for (DType type : kQuantTypes) {
    if (options.type != "all" && options.type != dtype_name(type)) continue;
    const int index = select_quant_kernel(quant_kernels(), {isa, features, type});
    const QuantKernelRow& kernel = quant_kernels()[static_cast<size_t>(index)];
    if (options.cases == "pack" || options.cases == "all") {
      std::printf("quant_bench case=pack type=%s file_gb_s=%.2f\n", std::string(dtype_name(type)).c_str(),
                  packing_gb_s(type));
    }
    if (options.cases == "pack") continue;
    if (options.cases != "prefill") decode_cases(pool, kernel, options);
    if (options.cases != "decode") prefill_cases(pool, kernel, options);
  }
}

}  // namespace
}  // namespace coprime

int main(int argc, char** argv) {
  coprime::Options options;
  CLI::App app("Times products with quantised weights beside the limits of this machine.");
  app.add_option("--threads", options.threads)->check(CLI::Range(1, 1024));
  app.add_option("--isa", options.isa, "the best to use")->check(CLI::IsMember({"avx2", "avx512", "amx"}));
  app.add_flag("!--no-avx-vnni", options.avx_vnni, "not AVX-VNNI either");
  app.add_option("--type", options.type, "of the weights: Q4_0, ..., or all");
  app.add_option("--cases", options.cases)->check(CLI::IsMember({"decode", "prefill", "pack", "all"}));
  app.add_option("--rows", options.rows, "of prefill, of one large matrix; 0: the usual ones");
  app.add_option("--passes", options.passes, "of each case; 0: as many as take a second or so");
  app.add_option("--dram-mib", options.dram_mib, "of the set that no cache holds")->check(CLI::Range(1, 1 << 20));
  app.add_option("--cache-mib", options.cache_mib, "of the set that the last cache holds")
      ->check(CLI::Range(1, 1 << 20));
  CLI11_PARSE(app, argc, argv);
  try {
    coprime::run(options);
  } catch (const coprime::Error& error) {
    std::fprintf(stderr, "quant_bench: %s\n", error.what());
    return coprime::exit_code(error.kind());
  }
}
