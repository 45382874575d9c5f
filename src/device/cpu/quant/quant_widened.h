// Products with quantised weights in the arithmetic of f32: a tile's elements are widened, and meet the float kernel.
// Order: that of the float kernel, acc = fma(w[k], x[k], acc) with k ascending (OrderClass::kSequentialFma).
#pragma once

#include "device/cpu/kernels.h"
#include "device/cpu/quant/quant_kernels.h"

namespace coprime {

// Tiles [first_tile, last_tile) of one weight for all rows of x, whose first column lies `lead` columns into the first
// block.
struct WidenedWork {
  DType type = DType::kOther;
  const std::byte* weight = nullptr;
  const float* bias = nullptr;  // or nullptr
  int64_t rows = 0, blocks = 0, lead = 0;
  int64_t first_tile = 0, last_tile = 0;
  View x, y;
  float* scratch = nullptr;  // widened_scratch() floats, aligned to a cache line
};

constexpr int64_t widened_scratch(int64_t columns) { return columns * kQuantRows; }

// `multiply` is a kernel of linear_kernels() for F32.
void multiply_widened(void (*widen)(const WidenWork&), LinearFn multiply, const WidenedWork& work);

}  // namespace coprime
