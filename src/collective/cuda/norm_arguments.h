// What follows a sum, as kernels take it: device pointers, rows of `columns` elements without gaps.
#pragma once

#include <cstdint>

namespace coprime {

struct NormArguments {
  int64_t rows = 0, columns = 0;
  uint16_t* residual = nullptr;   // bf16, in place
  const float* weight = nullptr;  // by column; null: the residual is all
  float eps = 0;
  bool one_plus = false;       // gamma = 1 + weight
  uint16_t* normed = nullptr;  // bf16; may be null
  uint8_t* codes = nullptr;    // e4m3; may be null
  float* scales = nullptr;     // by row
};

struct FloatRows {
  float* data = nullptr;
  int64_t stride = 0;  // elements
};

}  // namespace coprime
