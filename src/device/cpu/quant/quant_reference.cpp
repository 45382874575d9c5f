// The products as quant_kernels.h states them, one output after the other, in plain C++.
#include <algorithm>
#include <cmath>

#include "device/cpu/quant/quant_kernels.h"
#include "device/cpu/quant/quant_layout.h"

namespace coprime {
namespace {

template <DType kType>
void multiply(const QuantWork& work) {
  constexpr QuantFormat kFormat = quant_format(kType);
  const int64_t stride = activation_block_bytes(work.x.form), tile_bytes = quant_tile_bytes(kType, work.x.blocks);
  const int64_t last = std::min(work.rows, work.last_tile * kQuantRows);
  for (int64_t row = 0; row < work.x.rows; ++row) {
    for (int64_t output = work.first_tile * kQuantRows; output < last; ++output) {
      const std::byte* tile = work.weight + output / kQuantRows * tile_bytes;
      float y = 0;
      for (int64_t b = 0; b < work.x.blocks; ++b) {
        const QuantBlock block = read_quant_block(kType, tile, static_cast<int>(output % kQuantRows), b);
        const auto& x = *reinterpret_cast<const ActivationBlock*>(work.x.row(row) + b * stride);
        int16_t q[kQuantBlock];
        read_activations(work.x.form, x, q);
        int32_t sum = 0;
        for (int k = 0; k < kQuantBlock; ++k) sum += int32_t{block.value[k]} * q[k];
        y = std::fma(static_cast<float>(sum), block.scale * x.scale, y);
        if (kFormat.minimum && kFormat.factors < 2) y = std::fma(block.minimum[0], x.sum, y);
        if (kFormat.minimum && kFormat.factors == 2) {
          for (int half = 0; half < 2; ++half) y = std::fma(block.minimum[half], x.half_sum[half], y);
        }
      }
      work.y.row(row)[output] = work.bias == nullptr ? y : y + work.bias[output];
    }
  }
}

template <DType kType>
void widen(const WidenWork& work) {
  float row[kQuantBlock];
  for (int64_t done = 0; done < work.count; done += kQuantBlock) {
    const int64_t count = std::min<int64_t>(kQuantBlock, work.count - done);
    for (int lane = 0; lane < kQuantRows; ++lane) {
      read_quant_row(kType, work.tile, 0, lane, work.first + done, count, row);
      for (int64_t k = 0; k < count; ++k) work.out[(done + k) * kQuantRows + lane] = row[k];
    }
  }
}

ActivationForm form(MathMode, int64_t) { return ActivationForm::kHalves; }

template <DType kType>
constexpr QuantKernelRow row(const char* name) {
  return {Isa::kReference,
          {},
          kType,
          name,
          OrderClass::kIntegerBlocks,
          {form, quantise_reference, multiply<kType>, widen<kType>}};
}

}  // namespace

std::span<const QuantKernelRow> quant_reference_rows() {
  static constexpr QuantKernelRow kRows[] = {
      row<DType::kQ4_0>("quant reference Q4_0"),   row<DType::kQ4_1>("quant reference Q4_1"),
      row<DType::kQ5_0>("quant reference Q5_0"),   row<DType::kQ5_1>("quant reference Q5_1"),
      row<DType::kQ8_0>("quant reference Q8_0"),   row<DType::kQ2_K>("quant reference Q2_K"),
      row<DType::kQ3_K>("quant reference Q3_K"),   row<DType::kQ4_K>("quant reference Q4_K"),
      row<DType::kQ5_K>("quant reference Q5_K"),   row<DType::kQ6_K>("quant reference Q6_K"),
      row<DType::kMxfp4>("quant reference MXFP4"),
  };
  return kRows;
}

}  // namespace coprime
