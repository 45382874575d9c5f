// The plain read, the products of one row, and the matrix product.
#include <algorithm>
#include <memory>
#include <set>

#include "base/clock.h"
#include "device/cpu/cpu_device.h"
#include "device/packing.h"
#include "state/cache.h"
#include "tools/plain_read.h"
#include "tools/probe.h"

namespace coprime {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20, kColumns = 2048, kMatrixBytes = 2 * kMiB;
constexpr int64_t kSmallBytes = 8 * kMiB, kMiddleBytes = 24 * kMiB, kLargeBytes = 96 * kMiB;
constexpr double kLeastUs = 2e4;  // of one measurement

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
  Matrices(Device& device, DType type, int64_t bytes, int64_t rows = 1) {
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
    matrix_bytes_ = tiles * tile;
    out_ = Buffer(static_cast<size_t>(rows * tiles * kTileRows) * sizeof(float));
  }

  // The first matrices that together hold so many bytes; the bytes that `count` hold.
  size_t count_of(int64_t bytes) const {
    return std::min(weights_.size(), static_cast<size_t>((bytes + matrix_bytes_ - 1) / matrix_bytes_));
  }
  double bytes(size_t count) const { return static_cast<double>(static_cast<int64_t>(count) * matrix_bytes_); }

  void multiply(Device& device, View x, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const LinearTask task{weights_[i].get(), make_view(out_.as<float>(), x.rows, weights_[i]->rows)};
      device.linear(x, {&task, 1});
    }
  }

 private:
  std::vector<std::unique_ptr<Weight>> weights_;
  int64_t matrix_bytes_ = 0;
  Buffer out_;
};

}  // namespace

void probe_reads(const ProbeCores& cores, MachineHost& host) {
  for (const int threads : cores.threads) {
    for (const int64_t bytes : {2 * kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB})
      host.read.push_back({threads, bytes, PlainRead(bytes, threads).gb_s()});
  }
}

void probe_products(const ProbeCores& cores, MachineHost& host) {
  std::vector<float> row(static_cast<size_t>(kColumns), 0.5f);
  const View x = make_view(row.data(), 1, kColumns);
  const auto packer = make_cpu_device({});
  for (const DType type : kFormats) {
    Matrices matrices(*packer, type, kLargeBytes);
    for (const int threads : std::set<int>{1, cores.cores}) {
      const auto device = make_cpu_device({.threads = threads});
      for (const int64_t bytes : {kSmallBytes, kMiddleBytes, kLargeBytes}) {
        const size_t count = matrices.count_of(bytes);
        const double us = time_us([&] { matrices.multiply(*device, x, count); });
        host.products.push_back({std::string(dtype_name(type)), threads, bytes, matrices.bytes(count) / us / 1e3});
      }
    }
  }
}

// A row of queries, four to a KV head, over a context.
void probe_attention(const ProbeCores& cores, MachineHost& host) {
  constexpr int kKvHeads = 2, kGroup = 4, kDim = 128, kTokens = 2048;
  std::vector<float> query(static_cast<size_t>(kKvHeads * kGroup * kDim), 0.01f), out = query;
  const HeadsView q{query.data(), 1, std::ssize(query), kKvHeads * kGroup, kDim, kDim};
  std::vector<int32_t> pages;
  for (int page = 0; page < kTokens / kPageTokens; ++page) pages.push_back(page);
  const SequenceSpan span{.num_rows = 1, .start = kTokens - 1, .pages = pages};
  for (const int threads : std::set<int>{1, cores.cores}) {
    const auto device = make_cpu_device({.threads = threads});
    for (const int layers : {1, 32}) {
      const Cache cache({.attention_layers = layers,
                         .kv_heads = kKvHeads,
                         .head_dim = kDim,
                         .pages = static_cast<int>(pages.size())});
      const auto step = [&] {
        for (int layer = 0; layer < layers; ++layer)
          device->attend(cache.kv(layer), {&span, 1}, q, 0.1f, make_view(out.data(), 1, std::ssize(out)));
      };
      std::fill_n(cache.kv(0).pages, cache.shape().kv_bytes(), std::byte{0x3c});  // committed, and no denormal numbers
      const double us = time_us(step);
      const int64_t bytes = cache.shape().kv_bytes();
      host.attention.push_back({threads, bytes, static_cast<double>(bytes) / us / 1e3});
    }
  }
}

// What a linear layer does to its state in a step, of heads as large models have them.
void probe_states(const ProbeCores& cores, MachineHost& host) {
  constexpr DeltaNetShape kShape{.key_heads = 4, .value_heads = 12, .key_dim = 128, .value_dim = 128, .taps = 4};
  const int64_t channels = kShape.channels(), values = int64_t{kShape.value_heads} * kShape.value_dim;
  std::vector<float> in(static_cast<size_t>(channels), 0.01f), out = in, b(kShape.value_heads, 0.1f), a = b,
                                                               z(static_cast<size_t>(values), 0.1f), y = z,
                                                               taps(static_cast<size_t>(channels * kShape.taps), 0.1f);
  const SequenceSpan span{.num_rows = 1, .start = 100, .state_in = 0, .state_out = 0};
  const auto row = [](std::vector<float>& values_of) { return make_view(values_of.data(), 1, std::ssize(values_of)); };
  for (const int threads : std::set<int>{1, cores.cores}) {
    const auto device = make_cpu_device({.threads = threads});
    for (const int layers : {1, 32}) {
      const Cache cache({.linear_layers = layers, .linear = kShape, .slots = 1});
      const auto step = [&] {
        for (int layer = 0; layer < layers; ++layer) {
          const StateView state = cache.state(layer);
          device->short_convolution(state, kShape, {&span, 1}, taps.data(), row(in), row(out));
          device->delta_rule(state, kShape, {&span, 1}, row(out), row(b), row(a), b.data(), a.data(),
                             DeltaNetForm::kChunked, row(y));
          device->gated_norm(row(y), row(z), kShape.value_dim, z.data(), 1e-6f);
        }
      };
      const double us = time_us(step);
      const int64_t bytes = 2 * cache.shape().state_bytes();
      host.states.push_back({threads, bytes, static_cast<double>(bytes) / us / 1e3});
    }
  }
}

void probe_arithmetic(const ProbeCores& cores, MachineHost& host) {
  constexpr int64_t kRows = 128;
  const auto device = make_cpu_device({.threads = cores.cores});
  Matrices matrices(*device, DType::kBF16, 4 * kMatrixBytes, kRows);
  std::vector<float> rows(static_cast<size_t>(kRows * kColumns), 0.5f);
  const View x = make_view(rows.data(), kRows, kColumns);
  const size_t count = matrices.count_of(4 * kMatrixBytes);
  const double us = time_us([&] { matrices.multiply(*device, x, count); });
  // Two operations for each of the elements of two bytes.
  host.gflops = static_cast<double>(kRows) * matrices.bytes(count) / us / 1e3;
}

}  // namespace coprime
