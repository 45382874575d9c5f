// The CPU device's matrix products beside the limits of this machine, measured in the same run: a plain read of as many
// bytes for one row (decode), and the rate of independent fused multiply-adds for many rows (prefill).
//
// Prints one line a case. Rates are of the fastest pass, the one that others on the machine disturbed least; a pass of
// the product and one of its limit take turns.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <random>

#include "base/error.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/worker_pool.h"
#include "machine_limits.h"
#include "packing_rate.h"
#include "tools/plain_read.h"

namespace coprime {
namespace {

struct Options {
  int threads = 1, passes = 0;
  int64_t dram_mib = 400;
  std::string isa = "amx", type = "BF16", math = "split";
};

// ---- products

struct Product {
  std::vector<Weight> weights;  // of one input
  int64_t columns;
};

DType type_named(const std::string& name) {
  return name == "F32" ? DType::kF32 : name == "F16" ? DType::kF16 : DType::kBF16;
}

Weight random_weight(Device& device, DType type, int64_t rows, int64_t columns) {
  Weight weight;
  weight.name = "weight";
  weight.rows = rows;
  weight.columns = columns;
  const auto sink = device.pack(weight, type, WeightUse::kLinear);
  std::minstd_rand random(static_cast<uint32_t>(rows * 31 + columns));
  std::vector<std::byte> bytes(static_cast<size_t>(16 * columns * dtype_bytes(type)));
  for (int64_t i = 0; i < 16 * columns; ++i) {  // small numbers in each format
    if (type == DType::kF32) {
      reinterpret_cast<float*>(bytes.data())[i] = static_cast<float>(random() % 2048) / 1024 - 1;
    } else {
      reinterpret_cast<uint16_t*>(bytes.data())[i] = static_cast<uint16_t>((random() & 0x80ff) | 0x3c00);
    }
  }
  for (int64_t row = 0; row < rows; row += 16) {
    const int64_t count = std::min<int64_t>(16, rows - row);
    sink->rows(row, count, std::span(bytes).first(static_cast<size_t>(count * columns * dtype_bytes(type))));
  }
  return weight;
}

Product product(Device& device, DType type, int64_t columns, const std::vector<int64_t>& rows) {
  Product made;
  made.columns = columns;
  for (int64_t count : rows) made.weights.push_back(random_weight(device, type, count, columns));
  return made;
}

// The embedded model's matrices: six layers of DeltaNet, two of attention, and the head.
std::vector<Product> embedded_model(Device& device, DType type) {
  std::vector<Product> products;
  for (int layer = 0; layer < 8; ++layer) {
    if (layer % 4 == 3) {
      products.push_back(product(device, type, 256, {1536, 128, 128}));
    } else {
      products.push_back(product(device, type, 256, {1280, 768, 24, 24}));
    }
    products.push_back(product(device, type, 768, {256}));
    products.push_back(product(device, type, 256, {544, 544}));
    products.push_back(product(device, type, 544, {256}));
  }
  products.push_back(product(device, type, 256, {1000}));
  return products;
}

// Matrices of a 27B layer's sizes, as many as make the bytes.
std::vector<Product> large_model(Device& device, DType type, int64_t mib) {
  std::vector<Product> products;
  for (int64_t left = mib << 20; left > 0; left -= 5120 * 5120 * dtype_bytes(type)) {
    products.push_back(product(device, type, 5120, {5120}));
  }
  return products;
}

int64_t elements(const std::vector<Product>& products) {
  int64_t count = 0;
  for (const Product& each : products) {
    for (const Weight& weight : each.weights) count += weight.rows * weight.columns;
  }
  return count;
}

// One pass over all products for `rows` rows of input.
class Runner {
 public:
  Runner(Device& device, const std::vector<Product>& products, int64_t rows)
      : device_(device), products_(products), rows_(rows) {
    int64_t widest = 0, outputs = 0;
    for (const Product& each : products) {
      widest = std::max(widest, each.columns);
      int64_t sum = 0;
      for (const Weight& weight : each.weights) sum += weight.rows;
      outputs = std::max(outputs, sum);
    }
    x_.resize(static_cast<size_t>(rows * widest), 0.01f);
    y_.resize(static_cast<size_t>(rows * outputs));
  }
  void pass() {
    for (const Product& each : products_) {
      std::array<LinearTask, 4> tasks;
      size_t count = 0;
      float* y = y_.data();
      for (const Weight& weight : each.weights) {
        tasks[count++] = {&weight, make_view(y, rows_, weight.rows)};
        y += rows_ * weight.rows;
      }
      device_.linear(make_view(x_.data(), rows_, each.columns), std::span(tasks).first(count));
    }
  }

 private:
  Device& device_;
  const std::vector<Product>& products_;
  int64_t rows_;
  std::vector<float> x_, y_;
};

int repetitions(const Options& options, double expected_seconds) {
  return options.passes > 0 ? options.passes : std::clamp(static_cast<int>(1.5 / expected_seconds), 5, 2000);
}

void decode(Device& device, WorkerPool& pool, const std::vector<Product>& products, const char* name,
            const Options& options) {
  Runner runner(device, products, 1);
  const double bytes = static_cast<double>(elements(products)) * dtype_bytes(type_named(options.type));
  std::vector<double> product_times, read_times;
  volatile uint64_t sink = 0;
  runner.pass();
  const int passes = repetitions(options, bytes / 10e9);
  for (int i = 0; i < passes; ++i) {
    double start = seconds(pool.threads());
    runner.pass();
    product_times.push_back(seconds(pool.threads()) - start);
    start = seconds(pool.threads());
    pool.run([&](int thread) {
      uint64_t total = 0;
      for (const Product& each : products) {
        for (const Weight& weight : each.weights) {
          const Buffer& held = weight.components[0].bytes;
          const size_t share = held.size() / static_cast<size_t>(pool.threads());
          total ^= read_bytes(held.data() + share * static_cast<size_t>(thread), share);
        }
      }
      if (thread == 0) sink = total;
    });
    read_times.push_back(seconds(pool.threads()) - start);
  }
  const double product_rate = bytes / fastest(product_times) * 1e-9, read_rate = bytes / fastest(read_times) * 1e-9;
  std::printf(
      "device_bench case=decode set=%s type=%s math=%s device=\"%s\" mb=%.1f gb_s=%.2f plain_read_gb_s=%.2f "
      "ratio=%.3f\n",
      name, options.type.c_str(), options.math.c_str(), device.description().c_str(), bytes * 1e-6, product_rate,
      read_rate, product_rate / read_rate);
}

void prefill(Device& device, WorkerPool& pool, Isa isa, const std::vector<Product>& products, const char* name,
             int64_t rows, const Options& options) {
  Runner runner(device, products, rows);
  const double operations = 2.0 * static_cast<double>(elements(products)) * static_cast<double>(rows);
  std::vector<double> product_times, peak_times;
  volatile float sink = 0;
  runner.pass();
  const int passes = repetitions(options, operations / 50e9);
  for (int i = 0; i < passes; ++i) {
    double start = seconds(pool.threads());
    runner.pass();
    product_times.push_back(seconds(pool.threads()) - start);
    start = seconds(pool.threads());
    pool.run([&](int thread) {
      const float value = multiply_add_much(isa);
      if (thread == 0) sink = value;
    });
    peak_times.push_back(seconds(pool.threads()) - start);
  }
  const double rate = operations / fastest(product_times) * 1e-9;
  const double peak = fma_operations(isa) * pool.threads() / fastest(peak_times) * 1e-9;
  std::printf(
      "device_bench case=prefill set=%s rows=%lld type=%s math=%s device=\"%s\" gflop_s=%.1f fma_peak_gflop_s=%.1f "
      "ratio=%.3f\n",
      name, static_cast<long long>(rows), options.type.c_str(), options.math.c_str(), device.description().c_str(),
      rate, peak, rate / peak);
}

void run(const Options& options) {
  CpuOptions cpu;
  cpu.isa = options.isa == "avx2" ? Isa::kAvx2 : options.isa == "avx512" ? Isa::kAvx512 : Isa::kAmx;
  cpu.math = options.math == "f32" ? MathMode::kF32 : options.math == "fast" ? MathMode::kFast : MathMode::kSplit;
  cpu.threads = options.threads;
  const Isa isa = best_isa(cpu.isa);
  if (isa == Isa::kReference)
    fail(ErrorKind::kUsage, "this CPU has no AVX2 with FMA and F16C: there is nothing to measure");
  const auto device = make_cpu_device(cpu);
  WorkerPool pool(options.threads, {});
  const DType type = type_named(options.type);
  std::printf("device_bench case=pack type=%s file_gb_s=%.2f\n", options.type.c_str(), packing_gb_s(type));
  const std::vector<Product> embedded = embedded_model(*device, type);
  decode(*device, pool, embedded, "embedded", options);
  for (int64_t rows : {2, 4, 16, 64, 256}) prefill(*device, pool, isa, embedded, "embedded", rows, options);
  const std::vector<Product> large = large_model(*device, type, options.dram_mib);
  decode(*device, pool, large, "large", options);
  const std::vector<Product> one = large_model(*device, type, 1);
  for (int64_t rows : {64, 256}) prefill(*device, pool, isa, one, "large", rows, options);
}

}  // namespace
}  // namespace coprime

int main(int argc, char** argv) {
  coprime::Options options;
  CLI::App app("Times the CPU device's matrix products beside the limits of this machine.");
  app.add_option("--threads", options.threads)->check(CLI::Range(1, 1024));
  app.add_option("--isa", options.isa, "the best to use")->check(CLI::IsMember({"avx2", "avx512", "amx"}));
  app.add_option("--type", options.type, "of the weights")->check(CLI::IsMember({"BF16", "F16", "F32"}));
  app.add_option("--math", options.math, "of BF16")->check(CLI::IsMember({"f32", "split", "fast"}));
  app.add_option("--passes", options.passes, "of each case; 0: as many as take a second or so");
  app.add_option("--dram-mib", options.dram_mib, "of the set that no cache holds")->check(CLI::Range(1, 1 << 20));
  CLI11_PARSE(app, argc, argv);
  try {
    coprime::run(options);
  } catch (const coprime::Error& error) {
    std::fprintf(stderr, "device_bench: %s\n", error.what());
    return coprime::exit_code(error.kind());
  }
}
