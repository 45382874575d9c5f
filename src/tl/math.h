// The arithmetic of kernels, the same on every machine, compiler and CPU: f32 operations one by one, sums in the order
// of columns, products in the order of k (a bf16 times a bf16 is exact in f32). Elements are bf16 or f32, rounded to
// nearest even where they are written. exp(-inf - -inf) is 0: sub gives -inf for it (a row without keys keeps its
// state). Built without contraction to FMA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tl/tensor.h"

namespace coprime::tl {

// Elements in memory. Two-dimensional, contiguous.
struct Elements {
  std::byte* data;
  int64_t rows, columns;
  Type type;
};

enum class Binary : uint8_t { kMaximum, kAdd, kSub, kMul, kDiv };

void fill(Elements out, float value);
void row_max(Elements x, Elements out);  // [rows, 1]
void row_sum(Elements x, Elements out);
void exponential(Elements x, Elements out);
void binary(Binary op, Elements a, Elements b, Elements out);  // b: as a, or a column
void broadcast(Elements x, Elements out);                      // [1, columns] to every row
void transpose(Elements x, Elements out);
void mask(Elements out, int64_t diagonal);  // 0 where column <= row + diagonal, else -inf

// out [M, N] = a [M, K] times b [K, N], all in f32 here.
void matrix_product(const float* a, const float* b, float* out, int64_t m, int64_t k, int64_t n);

void widen(Elements x, float* out);
void narrow(const float* x, Elements out);

}  // namespace coprime::tl
