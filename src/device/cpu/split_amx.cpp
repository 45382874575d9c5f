// Products of BF16 weights with inputs in parts, with AMX.
#include <algorithm>
#include <cstring>
#include <utility>

#include "device/amx_tiles.h"
#include "device/cpu/split_linear.h"
#include "hwy/base.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512cd")
namespace coprime {
namespace {

#include "device/cpu/split_tiles-inl.h"

}  // namespace

std::span<const KernelRow<SplitFunctions>> split_amx_rows() {
  static constexpr KernelRow<SplitFunctions> kRows[] = {
      {Isa::kAmx,
       DType::kBF16,
       "split amx BF16",
       OrderClass::kBfloatTiles,
       {SplitForm::kTiles, multiply<AmxTiles>},
       {},
       MathMode::kSplit},
  };
  return kRows;
}

}  // namespace coprime
HWY_POP_ATTRIBUTES
