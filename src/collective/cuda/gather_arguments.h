// What a gather kernel takes: f32 slots of [rows, row_elements], of which rank r's first count[r] columns go to columns
// first[r] of `out`. rows * row_elements is a multiple of 4.
#pragma once

#include <cstdint>

#include "collective/all_reduce/slab_layout.h"

namespace coprime {

struct GatherArguments {
  int64_t rows = 0, row_elements = 0;
  float* out = nullptr;
  int64_t stride = 0;
  int64_t first[kMaxGpuRanks] = {}, count[kMaxGpuRanks] = {};
};

}  // namespace coprime
