// A matrix of float somewhere in a device's memory: rows of `columns` elements, `stride` elements apart. Owns nothing.
#pragma once

#include <cstdint>

#include "base/check.h"

namespace coprime {

struct View {
  float* data = nullptr;
  int64_t rows = 0, columns = 0, stride = 0;

  float* row(int64_t r) const { return data + r * stride; }
  View row_range(int64_t first, int64_t count) const {
    COPRIME_CHECK(first >= 0 && count >= 0 && first + count <= rows, "rows {}+{} of {}", first, count, rows);
    return {data + first * stride, count, columns, stride};
  }
  View column_range(int64_t first, int64_t count) const {
    COPRIME_CHECK(first >= 0 && count >= 0 && first + count <= columns, "columns {}+{} of {}", first, count, columns);
    return {data + first, rows, count, stride};
  }
};

inline View make_view(float* data, int64_t rows, int64_t columns) { return {data, rows, columns, columns}; }

}  // namespace coprime
