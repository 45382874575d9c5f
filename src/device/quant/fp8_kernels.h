// Products with FP8 weights: activations stay as they are, so that `split` and `fast` are the same here; decode waits
// for the memory all the same.
//
// The order, the same for every instruction set, number of rows and split (OrderClass::kScaledBlocks): an output begins
// at +0, and for each block of 128 columns, ascending,
//   s = fma(value[k], x[k] * 2^-40, s) for k ascending, from +0
//   y = fma(scale * 2^40, s, y)
// with the values and scale of fp8_layout.h; the bias is added last. (2^-40 is what the exponents of shifted codes ask
// for: a kernel multiplies value * 2^-120 by x * 2^80, to the same bits while |x| < 2^48.) With --math f32 tiles are
// widened instead, and multiplied as F32 weights are.
#pragma once

#include <span>

#include "device/cpu/kernels.h"
#include "device/quant/quant_kernels.h"

namespace coprime {

constexpr float kFp8SumScale = 0x1p-40f;  // of x in sums

struct Fp8Functions {
  LinearFn multiply;  // x has whole blocks of columns
  void (*widen)(const WidenWork&);
};

// One row an instruction set; the reference fits every CPU.
std::span<const KernelRow<const Fp8Functions*>> fp8_kernels();
const Fp8Functions& fp8_reference();

}  // namespace coprime
