// Quantised products with AVX2.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "device/cpu/quant/quant_kernels.h"
#include "device/cpu/quant/quant_layout.h"
#include "hwy/base.h"

#define COPRIME_AVX_VNNI 0
HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,bmi,bmi2")
namespace coprime {
namespace {

#include "device/cpu/quant/vectors256-inl.h"
//
#include "device/cpu/quant/quant-inl.h"

template <DType kType>
constexpr QuantKernelRow row(const char* name) {
  return {Isa::kAvx2, {}, kType, name, OrderClass::kIntegerBlocks, kFunctions<kType>};
}

}  // namespace

std::span<const QuantKernelRow> quant_avx2_rows() {
  static constexpr QuantKernelRow kRows[] = {
      row<DType::kQ4_0>("quant avx2 Q4_0"),   row<DType::kQ4_1>("quant avx2 Q4_1"),
      row<DType::kQ5_0>("quant avx2 Q5_0"),   row<DType::kQ5_1>("quant avx2 Q5_1"),
      row<DType::kQ8_0>("quant avx2 Q8_0"),   row<DType::kQ2_K>("quant avx2 Q2_K"),
      row<DType::kQ3_K>("quant avx2 Q3_K"),   row<DType::kQ4_K>("quant avx2 Q4_K"),
      row<DType::kQ5_K>("quant avx2 Q5_K"),   row<DType::kQ6_K>("quant avx2 Q6_K"),
      row<DType::kMxfp4>("quant avx2 MXFP4"),
  };
  return kRows;
}

}  // namespace coprime
HWY_POP_ATTRIBUTES
