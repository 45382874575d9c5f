// The plain read, the products of one row, and the matrix product.
#include <algorithm>
#include <memory>
#include <set>

#include "base/clock.h"
#include "device/cpu/cpu_device.h"
#include "device/packing.h"
#include "tools/plain_read.h"
#include "tools/probe.h"

namespace coprime {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20, kColumns = 2048, kMatrixBytes = 2 * kMiB;
constexpr double kLeastUs = 4e4;  // of one measurement

constexpr DType kFormats[] = {DType::kBF16, DType::kF16,  DType::kF32,  DType::kQ4_0, DType::kQ4_1,
                              DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ2_K, DType::kQ3_K,
                              DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

// Microseconds of one call, the best of three runs of `kLeastUs` or more.
template <class Body>
double time_us(const Body& body) {
  double best = 0;
  int64_t calls = 1;
  for (int run = 0; run < 3;) {
    const int64_t begin_us = now_us();
    for (int64_t i = 0; i < calls; ++i) body();
    const auto took_us = static_cast<double>(std::max<int64_t>(now_us() - begin_us, 1));
    if (took_us < kLeastUs / 3) {
      calls = std::max(calls + 1,
                       static_cast<int64_t>(static_cast<double>(calls) * std::min(kLeastUs / 2.5 / took_us, 50.0)));
      continue;
    }
    const double us = took_us / static_cast<double>(calls);
    best = run++ == 0 ? us : std::min(best, us);
  }
  return best;
}

// Matrices of one format that a step reads one after the other. Blocks hold small numbers: no scale is infinite.
class Matrices {
 public:
  Matrices(Device& device, DType type, int64_t bytes) {
    const int64_t tile = tile_bytes(type, kColumns), tiles = std::max<int64_t>(kMatrixBytes / tile, 1);
    const BlockShape block = block_shape(type);
    const std::vector<std::byte> row(static_cast<size_t>(kColumns / block.elements * block.bytes), std::byte{0x11});
    for (int64_t packed = 0; packed < bytes; packed += tiles * tile) {
      Weight& weight = *weights_.emplace_back(std::make_unique<Weight>());
      weight.rows = tiles * kTileRows;
      weight.columns = kColumns;
      const auto sink = device.pack(weight, type, WeightUse::kLinear);
      for (int64_t r = 0; r < weight.rows; ++r) sink->rows(r, 1, row);
    }
    bytes_ = static_cast<double>(static_cast<int64_t>(weights_.size()) * tiles * tile);
    out_ = Buffer(static_cast<size_t>(tiles * kTileRows) * sizeof(float));
  }

  double bytes() const { return bytes_; }
  void multiply(Device& device, View x) {
    for (const auto& weight : weights_) {
      const LinearTask task{weight.get(), make_view(out_.as<float>(), x.rows, weight->rows)};
      device.linear(x, {&task, 1});
    }
  }

 private:
  std::vector<std::unique_ptr<Weight>> weights_;
  double bytes_ = 0;
  Buffer out_;
};

}  // namespace

void probe_reads(const ProbeCores& cores, MachineHost& host) {
  for (const int threads : cores.threads) {
    for (const int64_t bytes : {2 * kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB}) {
      PlainRead read(bytes, threads);
      host.read.push_back({threads, bytes, std::max(read.gb_s(), read.gb_s())});
    }
  }
}

void probe_products(const ProbeCores& cores, MachineHost& host) {
  std::vector<float> row(static_cast<size_t>(kColumns), 0.5f);
  const View x = make_view(row.data(), 1, kColumns);
  for (const int threads : std::set<int>{1, cores.cores}) {
    const auto device = make_cpu_device({.threads = threads});
    for (const DType type : kFormats) {
      for (const int64_t bytes : {8 * kMiB, 96 * kMiB}) {
        Matrices matrices(*device, type, bytes);
        matrices.multiply(*device, x);
        const double us = time_us([&] { matrices.multiply(*device, x); });
        host.products.push_back({std::string(dtype_name(type)), threads, bytes, matrices.bytes() / us / 1e3});
      }
    }
  }
}

}  // namespace coprime
