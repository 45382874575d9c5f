// Products of BF16 weights with inputs in parts of bf16, for CPUs that multiply those: what a kernel is given, what it
// must compute, and the table of kernels.
//
// x = hi + lo (+ what is lost): hi = bf16(x), lo = bf16(x - hi), each rounded to nearest even; kFast has hi alone. Two
// parts keep 16 bits: |x - hi - lo| <= 2^-17 |x|; one keeps 8: 2^-8 |x|. What is smaller than 2^-126, of weights, parts
// or sums, counts as zero; an x beyond 2^128 (1 - 2^-9), and an infinity, make their row's outputs NaN.
//
// The order, the same for every number of rows and every split, is the class's own, since the instructions differ:
//   kBfloatPairs  an output begins at +0; for each pair of columns, ascending, y = dot(w pair, hi pair, y), then
//                 y = dot(w pair, lo pair, y), as vdpbf16ps adds two products to a sum;
//   kBfloatTiles  columns go in blocks of 512: for each, hi and lo have a sum of their own, which begins at +0 and to
//                 which tdpbf16ps adds 32 columns at a time; y is their sum in the first block, y + their sum in
//                 others.
// The bias is added last. Either is within (2 K + 2) 2^-24 sum |w x| of the parts' real product.
#pragma once

#include <span>

#include "device/cpu/kernel_table.h"
#include "device/math_mode.h"
#include "tensor/view.h"

namespace coprime {

constexpr int kSplitColumns = 32;  // columns of a block of inputs, the last one filled up with zeros

enum class SplitForm : uint8_t {
  kWords,  // row by row; 16 columns of hi, then the same of lo, and so on
  kTiles,  // groups of 16 / parts rows (the last one may be smaller); for each block of 32 columns the rows of hi, then
           // those of lo
};

// Rows of x in parts, in memory of another.
struct SplitInputs {
  std::byte* data = nullptr;
  int64_t rows = 0, columns = 0;
  int parts = 2;
  SplitForm form = SplitForm::kWords;

  int64_t blocks() const { return (columns + kSplitColumns - 1) / kSplitColumns; }
  int64_t row_bytes() const { return blocks() * parts * kSplitColumns * 2; }
  int64_t bytes() const { return rows * row_bytes(); }
  int group_rows() const { return 16 / parts; }
};

// Rows [first, last) of x; for kTiles `first` begins a group.
struct SplitInputsWork {
  View x;
  SplitInputs out;
  int64_t first = 0, last = 0;
};
void split_inputs(const SplitInputsWork& work);  // with AVX2

// Tiles [first_tile, last_tile) of one weight for all rows of x.
struct SplitWork {
  const std::byte* weight = nullptr;  // Layout::kTile16Pairs
  const float* bias = nullptr;        // or nullptr
  int64_t rows = 0;                   // of the weight
  int64_t first_tile = 0, last_tile = 0;
  SplitInputs x;  // in the form that the kernel asks for
  View y;         // [x.rows, rows]
};

struct SplitFunctions {
  SplitForm form;
  void (*multiply)(const SplitWork&);
};
std::span<const KernelRow<SplitFunctions>> split_amx_rows();
std::span<const KernelRow<SplitFunctions>> split_avx512_bf16_rows();

// All of them. A CPU that fits none multiplies BF16 as linear_kernels() do, whatever the arithmetic.
std::span<const KernelRow<SplitFunctions>> split_kernels();

}  // namespace coprime
