// The products as fp8_kernels.h states them, one output after the other, in plain C++.
#include <algorithm>
#include <cmath>

#include "device/quant/fp8_kernels.h"
#include "device/quant/fp8_layout.h"

namespace coprime {
namespace {

void multiply(const LinearWork& work) {
  const int64_t blocks = work.x.columns / kFp8Columns, last = std::min(work.rows, work.last_tile * kQuantRows);
  for (int64_t output = work.first_tile * kQuantRows; output < last; ++output) {
    const std::byte* tile = work.weight + output / kQuantRows * blocks * kFp8TileBlockBytes;
    for (int64_t row = 0; row < work.x.rows; ++row) {
      float y = 0;
      for (int64_t b = 0; b < blocks; ++b) {
        const Fp8Block block = read_fp8_block(tile + b * kFp8TileBlockBytes, static_cast<int>(output % kQuantRows));
        const float* x = work.x.row(row) + b * kFp8Columns;
        float sum = 0;
        for (int64_t k = 0; k < kFp8Columns; ++k) sum = std::fma(block.value[k], x[k] * kFp8SumScale, sum);
        y = std::fma(block.scale / kFp8SumScale, sum, y);
      }
      work.y.row(row)[output] = work.bias == nullptr ? y : y + work.bias[output];
    }
  }
}

void widen(const WidenWork& work) {
  std::vector<float> row(static_cast<size_t>(work.count));
  for (int lane = 0; lane < kQuantRows; ++lane) {
    read_fp8_row(work.tile, 0, lane, work.first, work.count, row.data());
    for (int64_t k = 0; k < work.count; ++k) work.out[k * kQuantRows + lane] = row[static_cast<size_t>(k)];
  }
}

constexpr Fp8Functions kReference = {multiply, widen};

}  // namespace

const Fp8Functions& fp8_reference() { return kReference; }

}  // namespace coprime
