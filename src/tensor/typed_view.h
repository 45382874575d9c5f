// A matrix of F32 or BF16 somewhere in a device's memory: rows of `columns` elements, `stride` elements apart. Owns
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

namespace coprime {

struct TypedView {
  std::byte* data = nullptr;
  DType type = DType::kF32;
  int64_t rows = 0, columns = 0, stride = 0;

  TypedView() = default;
  TypedView(void* first, DType element, int64_t row_count, int64_t column_count)
      : data(static_cast<std::byte*>(first)),
        type(element),
        rows(row_count),
        columns(column_count),
        stride(column_count) {}
  TypedView(const View& view)  // a matrix of float is one
      : data(reinterpret_cast<std::byte*>(view.data)), rows(view.rows), columns(view.columns), stride(view.stride) {}

  std::byte* row(int64_t r) const { return data + r * stride * dtype_bytes(type); }
  TypedView row_range(int64_t first, int64_t count) const {
    COPRIME_CHECK(first >= 0 && count >= 0 && first + count <= rows, "rows {}+{} of {}", first, count, rows);
    TypedView part = *this;
    part.data = row(first);
    part.rows = count;
    return part;
  }
  View as_f32() const {
    COPRIME_CHECK(type == DType::kF32 || data == nullptr, "a matrix of {}", dtype_name(type));
    return {reinterpret_cast<float*>(data), rows, columns, stride};
  }
};

}  // namespace coprime
