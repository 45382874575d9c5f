// What the tests of quantised products share: seeded blocks of the file, weights packed from them,
// activations rounded, products of one kernel.
#pragma once

#include <cmath>
#include <random>

#include "base/number_formats.h"
#include "device/quant/quant_kernels.h"
#include "device/quant/quant_layout.h"
#include "tensor/buffer.h"

namespace coprime::testing {

// Where the f16 scales of a file's block lie.
inline std::vector<int> half_places(DType type) {
  switch (type) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ2_K:
      return {80, 82};
    case DType::kQ3_K:
      return {108};
    case DType::kQ6_K:
      return {208};
    case DType::kMxfp4:
      return {};
    default:
      return {0};
  }
}

// A matrix in blocks of the file, packed.
struct QuantMatrix {
  DType type;
  int64_t rows, blocks;  // of 32
  std::vector<std::byte> file;
  Buffer tiles;

  int64_t file_row_bytes() const {
    const BlockShape shape = block_shape(type);
    return blocks * kQuantBlock / shape.elements * shape.bytes;
  }
  std::span<const std::byte> file_row(int64_t row) const {
    return std::span(file).subspan(static_cast<size_t>(row * file_row_bytes()), static_cast<size_t>(file_row_bytes()));
  }
  void pack() {
    tiles = Buffer(static_cast<size_t>(quant_tiles(rows) * quant_tile_bytes(type, blocks)));
    for (int64_t row = 0; row < rows; ++row) pack_quant_row(type, file_row(row), row, tiles.data());
  }
};

// Every code equally likely; scales of the given size, of either sign.
inline QuantMatrix random_quant_matrix(DType type, int64_t rows, int64_t blocks, uint32_t seed, float size = 0.01f) {
  QuantMatrix made{type, rows, blocks, {}, {}};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, size);
  made.file.resize(static_cast<size_t>(rows * made.file_row_bytes()));
  for (std::byte& byte : made.file) byte = static_cast<std::byte>(random());
  const int bytes = block_shape(type).bytes;
  for (size_t at = 0; at < made.file.size(); at += static_cast<size_t>(bytes)) {
    for (int place : half_places(type)) {
      const uint16_t half = f32_to_f16(normal(random));
      std::memcpy(made.file.data() + at + place, &half, 2);
    }
    if (type == DType::kMxfp4) made.file[at] = static_cast<std::byte>(118 + random() % 5);
  }
  made.pack();
  return made;
}

// x rounded for a kernel.
struct RoundedInput {
  Buffer memory;
  QuantActivations blocks;
};
inline RoundedInput rounded(QuantiseFn quantise, ActivationForm form, MathMode math, View x) {
  RoundedInput made;
  made.blocks = {nullptr, x.rows, x.columns / kQuantBlock, form};
  made.memory = Buffer(static_cast<size_t>(std::max<int64_t>(x.rows * made.blocks.row_bytes(), 64)));
  made.blocks.data = made.memory.data();
  quantise({x, math, made.blocks, 0, x.rows});
  return made;
}

// The kernels that this CPU can run for a type.
inline std::vector<const QuantKernelRow*> runnable_kernels(DType type) {
  std::vector<const QuantKernelRow*> found;
  const CpuFeatures there = cpu_features();
  for (const QuantKernelRow& row : quant_kernels()) {
    if (row.type == type && row.isa <= best_isa(Isa::kAmx) && missing_feature(row.features, there) == nullptr) {
      found.push_back(&row);
    }
  }
  return found;
}

}  // namespace coprime::testing
