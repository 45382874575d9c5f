// Quantised products with AMX: many rows of x; few go as they do with AVX-512-VNNI.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "device/amx_tiles.h"
#include "device/quant/quant_kernels.h"
#include "device/quant/quant_layout.h"
#include "hwy/base.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,bmi,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx512vnni")
namespace coprime {
namespace {

#include "device/quant/vectors512-inl.h"
//
#include "device/quant/quant-inl.h"
//
#include "device/quant/quant_tiles-inl.h"

constexpr int64_t kManyRows = 16;  // that are worth a group of tiles

// What serves fewer rows.
template <DType kType>
const QuantFunctions& without_tiles() {
  static const QuantFunctions functions = [] {
    const auto rows = quant_avx512_vnni_rows();
    return std::ranges::find(rows, kType, &QuantKernelRow::type)->functions;
  }();
  return functions;
}

template <DType kType>
ActivationForm form_of(MathMode math, int64_t rows) {
  if (rows < kManyRows) return without_tiles<kType>().form(math, rows);
  return math == MathMode::kFast ? ActivationForm::kOneByte : ActivationForm::kTwoBytes;
}

template <DType kType>
void multiply_rows_of_x(const QuantWork& work) {
  work.x.rows < kManyRows ? without_tiles<kType>().multiply(work) : multiply_many<AmxTiles, kType>(work);
}

template <DType kType>
void widen_tile(const WidenWork& work) {
  without_tiles<kType>().widen(work);
}

template <DType kType>
constexpr QuantKernelRow row(const char* name) {
  return {Isa::kAmx,
          {.avx512_vnni = true},
          kType,
          name,
          OrderClass::kIntegerBlocks,
          {form_of<kType>, quantise_avx2, multiply_rows_of_x<kType>, widen_tile<kType>}};
}

}  // namespace

std::span<const QuantKernelRow> quant_amx_rows() {
  static constexpr QuantKernelRow kRows[] = {
      row<DType::kQ4_0>("quant amx Q4_0"), row<DType::kQ4_1>("quant amx Q4_1"),   row<DType::kQ5_0>("quant amx Q5_0"),
      row<DType::kQ5_1>("quant amx Q5_1"), row<DType::kQ8_0>("quant amx Q8_0"),   row<DType::kQ4_K>("quant amx Q4_K"),
      row<DType::kQ5_K>("quant amx Q5_K"), row<DType::kMxfp4>("quant amx MXFP4"),
  };
  return kRows;
}

}  // namespace coprime
HWY_POP_ATTRIBUTES
