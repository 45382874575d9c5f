// The CPU device's attention beside the limits of this machine, measured in the same run and in turns: for one row
// (decode) the plain read of as many bytes of keys and values, for a chunk of rows (prefill) the rate of independent
// fused multiply-adds. Prints one line a case; rates are of the fastest pass.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <random>

#include "base/error.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/worker_pool.h"
#include "machine_limits.h"
#include "tools/plain_read.h"

namespace coprime {
namespace {

struct Options {
  int threads = 1, heads = 9, kv_heads = 3, head_dim = 64, chunk = 256, passes = 0;
  int64_t mib = 256;
  std::string isa = "avx512", kv = "f32";
  std::vector<int64_t> contexts{512, 4096, 32768};
};

DType kv_type(const std::string& name) {
  return name == "f16" ? DType::kF16 : name == "bf16" ? DType::kBF16 : name == "fp8" ? DType::kF8E4M3 : DType::kF32;
}

// One sequence's keys and values in so many layers.
struct Cache {
  Cache(Device& device, const Options& options, int64_t tokens, int64_t num_layers) {
    kv.type = kv_type(options.kv);
    kv.kv_heads = options.kv_heads;
    kv.head_dim = options.head_dim;
    const int64_t count = (tokens + kPageTokens - 1) / kPageTokens;
    bytes = count * kv.page_bytes();
    memory = Buffer(static_cast<size_t>(bytes * num_layers));
    for (int64_t i = 0; i < count; ++i) pages.push_back(static_cast<int32_t>(i));
    std::minstd_rand random(7);
    const int64_t columns = int64_t{options.kv_heads} * options.head_dim;
    std::vector<float> rows(static_cast<size_t>(kPageTokens * columns));
    for (float& value : rows) value = static_cast<float>(random() % 2048) / 1024 - 1;
    const HeadsView heads{rows.data(), kPageTokens, columns, options.kv_heads, options.head_dim, options.head_dim};
    for (int64_t layer = 0; layer < num_layers; ++layer) {
      layers.push_back(kv);
      layers.back().pages = memory.data() + layer * bytes;
      for (int64_t page = 0; page < count; ++page) {
        SequenceSpan span;
        span.start = page * kPageTokens;
        span.num_rows = kPageTokens;
        span.pages = pages;
        device.store_kv(layers.back(), {&span, 1}, heads, heads);
      }
    }
  }
  KvView kv;
  int64_t bytes = 0;  // of a layer
  Buffer memory;
  std::vector<int32_t> pages;
  std::vector<KvView> layers;
};

// Rows [context - rows, context) of every layer.
class Runner {
 public:
  Runner(Device& device, const Options& options, const Cache& cache, int64_t context, int64_t rows)
      : device_(device), cache_(cache), columns_(int64_t{options.heads} * options.head_dim) {
    q_.assign(static_cast<size_t>(rows * columns_), 0.01f);
    out_.resize(q_.size());
    queries_ = {q_.data(), rows, columns_, options.heads, options.head_dim, options.head_dim};
    span_.start = context - rows;
    span_.num_rows = rows;
    span_.pages = cache.pages;
  }
  void pass() {
    for (const KvView& layer : cache_.layers)
      device_.attend(layer, {&span_, 1}, queries_, 0.125f, make_view(out_.data(), span_.num_rows, columns_));
  }

 private:
  Device& device_;
  const Cache& cache_;
  int64_t columns_;
  std::vector<float> q_, out_;
  HeadsView queries_;
  SequenceSpan span_;
};

int repetitions(const Options& options, double expected_seconds) {
  return options.passes > 0 ? options.passes : std::clamp(static_cast<int>(1.0 / expected_seconds), 3, 200);
}

void decode(Device& device, WorkerPool& pool, const Options& options, int64_t context) {
  const Cache one(device, options, context, 1);
  const int64_t layers = std::max<int64_t>((options.mib << 20) / one.bytes, 1);
  const Cache cache(device, options, context, layers);
  Runner runner(device, options, cache, context, 1);
  const auto bytes = static_cast<double>(cache.bytes * layers);
  std::vector<double> times, read_times;
  volatile uint64_t sink = 0;
  runner.pass();
  for (int i = 0; i < repetitions(options, bytes / 5e9); ++i) {
    double start = seconds(pool.threads());
    runner.pass();
    times.push_back(seconds(pool.threads()) - start);
    start = seconds(pool.threads());
    pool.run([&](int thread) {
      const size_t share = cache.memory.size() / static_cast<size_t>(pool.threads());
      const uint64_t total = read_bytes(cache.memory.data() + share * static_cast<size_t>(thread), share);
      if (thread == 0) sink = total;
    });
    read_times.push_back(seconds(pool.threads()) - start);
  }
  const double rate = bytes / fastest(times) * 1e-9, read_rate = bytes / fastest(read_times) * 1e-9;
  std::printf(
      "attention_bench case=decode context=%lld kv=%s device=\"%s\" heads=%d/%d dim=%d mb=%.1f gb_s=%.2f "
      "plain_read_gb_s=%.2f ratio=%.3f\n",
      static_cast<long long>(context), options.kv.c_str(), device.description().c_str(), options.heads,
      options.kv_heads, options.head_dim, bytes * 1e-6, rate, read_rate, rate / read_rate);
}

void prefill(Device& device, WorkerPool& pool, Isa isa, const Options& options, int64_t context) {
  const Cache cache(device, options, context, 1);
  const int64_t rows = std::min<int64_t>(options.chunk, context);
  Runner runner(device, options, cache, context, rows);
  double seen = 0;  // tokens, by all rows
  for (int64_t row = 0; row < rows; ++row) seen += static_cast<double>(context - row);
  const double operations = 4.0 * options.heads * options.head_dim * seen;
  std::vector<double> times, peak_times;
  volatile float sink = 0;
  runner.pass();
  for (int i = 0; i < repetitions(options, operations / 30e9); ++i) {
    double start = seconds(pool.threads());
    runner.pass();
    times.push_back(seconds(pool.threads()) - start);
    start = seconds(pool.threads());
    pool.run([&](int thread) {
      const float value = multiply_add_much(isa);
      if (thread == 0) sink = value;
    });
    peak_times.push_back(seconds(pool.threads()) - start);
  }
  const double rate = operations / fastest(times) * 1e-9;
  const double peak = fma_operations(isa) * pool.threads() / fastest(peak_times) * 1e-9;
  std::printf(
      "attention_bench case=prefill context=%lld rows=%lld kv=%s device=\"%s\" heads=%d/%d dim=%d gflop_s=%.1f "
      "fma_peak_gflop_s=%.1f ratio=%.3f\n",
      static_cast<long long>(context), static_cast<long long>(rows), options.kv.c_str(), device.description().c_str(),
      options.heads, options.kv_heads, options.head_dim, rate, peak, rate / peak);
}

void run(const Options& options) {
  CpuOptions cpu;
  cpu.isa = options.isa == "avx2" ? Isa::kAvx2 : Isa::kAvx512;
  cpu.threads = options.threads;
  const Isa isa = best_isa(cpu.isa);
  if (isa == Isa::kReference)
    fail(ErrorKind::kUsage, "this CPU has no AVX2 with FMA and F16C: there is nothing to measure");
  if (options.heads % options.kv_heads != 0)
    fail(ErrorKind::kUsage, "{} heads, {} KV heads: give a multiple", options.heads, options.kv_heads);
  const auto device = make_cpu_device(cpu);
  WorkerPool pool(options.threads, {});
  for (const int64_t context : options.contexts) {
    decode(*device, pool, options, context);
    prefill(*device, pool, isa, options, context);
  }
}

}  // namespace
}  // namespace coprime

int main(int argc, char** argv) {
  coprime::Options options;
  CLI::App app("Times the CPU device's attention beside the limits of this machine.");
  app.add_option("--threads", options.threads)->check(CLI::Range(1, 1024));
  app.add_option("--isa", options.isa, "the best to use")->check(CLI::IsMember({"avx2", "avx512"}));
  app.add_option("--kv", options.kv, "type of keys and values")->check(CLI::IsMember({"f32", "f16", "bf16", "fp8"}));
  app.add_option("--heads", options.heads)->check(CLI::Range(1, 1024));
  app.add_option("--kv-heads", options.kv_heads)->check(CLI::Range(1, 1024));
  app.add_option("--head-dim", options.head_dim)->check(CLI::Range(1, 1024));
  app.add_option("--context", options.contexts, "tokens, one or more")->check(CLI::Range(1, 1 << 24));
  app.add_option("--chunk", options.chunk, "rows of prefill")->check(CLI::Range(1, 4096));
  app.add_option("--mib", options.mib, "that no cache holds: decode reads as many layers")
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--passes", options.passes, "of each case; 0: as many as take a second or so");
  CLI11_PARSE(app, argc, argv);
  try {
    coprime::run(options);
  } catch (const coprime::Error& error) {
    std::fprintf(stderr, "attention_bench: %s\n", error.what());
    return coprime::exit_code(error.kind());
  }
}
