// Quantised products with AVX-512-VNNI.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "device/cpu/quant/quant_kernels.h"
#include "device/cpu/quant/quant_layout.h"
#include "hwy/base.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,bmi,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx512vnni")
namespace coprime {
namespace {

#include "device/cpu/quant/vectors512-inl.h"
//
#include "device/cpu/quant/quant-inl.h"

template <DType kType>
constexpr QuantKernelRow row(const char* name) {
  return {Isa::kAvx512, {.avx512_vnni = true}, kType, name, OrderClass::kIntegerBlocks, kFunctions<kType>};
}

}  // namespace

std::span<const QuantKernelRow> quant_avx512_vnni_rows() {
  static constexpr QuantKernelRow kRows[] = {
      row<DType::kQ4_0>("quant avx512-vnni Q4_0"),   row<DType::kQ4_1>("quant avx512-vnni Q4_1"),
      row<DType::kQ5_0>("quant avx512-vnni Q5_0"),   row<DType::kQ5_1>("quant avx512-vnni Q5_1"),
      row<DType::kQ8_0>("quant avx512-vnni Q8_0"),   row<DType::kQ2_K>("quant avx512-vnni Q2_K"),
      row<DType::kQ3_K>("quant avx512-vnni Q3_K"),   row<DType::kQ4_K>("quant avx512-vnni Q4_K"),
      row<DType::kQ5_K>("quant avx512-vnni Q5_K"),   row<DType::kQ6_K>("quant avx512-vnni Q6_K"),
      row<DType::kMxfp4>("quant avx512-vnni MXFP4"),
  };
  return kRows;
}

}  // namespace coprime
HWY_POP_ATTRIBUTES
