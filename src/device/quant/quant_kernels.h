// Products with quantised weights: what a kernel is given, what it must compute, and the table of kernels.
//
// The order, the same for every instruction set, number of rows and split (OrderClass::kIntegerBlocks): an output
// begins at +0, and for each block of 32 columns, ascending,
//   I = sum of value[k] * q[k], an integer, exact
//   y = fma(float(I), scale * s, y)
// then, where the format has minima,
//   y = fma(minimum, s * sum of q, y)            or, where minima are per 16 columns, one after the other,
//   y = fma(minimum[h], s * sum of q of half h, y)
// with value, scale and minimum of quant_format.h, s and q of activations.h; the bias is added last. So results of
// different kernels are equal bit for bit.
#pragma once

#include <span>
#include <string>

#include "device/cpu/kernel_table.h"
#include "device/device.h"
#include "device/isa.h"
#include "device/quant/activations.h"

namespace coprime {

// Tiles [first_tile, last_tile) of one weight for all rows of x.
struct QuantWork {
  const std::byte* weight = nullptr;  // packed tiles (quant_layout.h)
  const float* bias = nullptr;        // or nullptr
  int64_t rows = 0;                   // of the weight
  int64_t first_tile = 0, last_tile = 0;
  QuantActivations x;  // in the form that the kernel asks for
  View y;              // [x.rows, rows]
};

// A tile's elements as floats, [count][16], from column `first` on: for the arithmetic of f32, and the same values as
// read_quant_row().
struct WidenWork {
  const std::byte* tile = nullptr;
  int64_t first = 0, count = 0;
  float* out = nullptr;  // aligned to a cache line
};

struct QuantFunctions {
  // The form that multiply() wants for so many rows.
  ActivationForm (*form)(MathMode math, int64_t rows);
  QuantiseFn quantise;
  void (*multiply)(const QuantWork&);
  void (*widen)(const WidenWork&);
};

struct QuantKernelRow {
  Isa isa;               // what the CPU must have
  CpuFeatures features;  // and these
  DType type;            // of the weights
  const char* name;
  OrderClass order;
  QuantFunctions functions;
};

struct QuantRequest {
  Isa isa;  // the best that may be used
  CpuFeatures features;
  DType type;
};

// The rows of each file, one for each of kQuantTypes; of AMX, for those that gain from it.
std::span<const QuantKernelRow> quant_amx_rows();
std::span<const QuantKernelRow> quant_avx512_vnni_rows();
std::span<const QuantKernelRow> quant_avx_vnni_rows();
std::span<const QuantKernelRow> quant_avx2_rows();
std::span<const QuantKernelRow> quant_reference_rows();

// All of them, best first.
std::span<const QuantKernelRow> quant_kernels();

// The index of the first row that fits; the reference fits every type of kQuantTypes, -1 for another.
int select_quant_kernel(std::span<const QuantKernelRow> rows, const QuantRequest& request);

// What became of each row for the request's type.
std::vector<KernelVerdict> judge_quant_kernels(std::span<const QuantKernelRow> rows, const QuantRequest& request);

}  // namespace coprime
