// Products with FP8 weights in SIMD, as fp8_kernels.h states them. Lanes are output rows.
//
// Few rows of x, one after the other: codes go from memory to registers, four tiles at a time, which later rows find in
// a cache; each sum is a chain, and many chains hide the latency of an addition. More rows: a tile's block is widened
// once, and the kernel of F32 weights takes it from there.
#include "device/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/quant/fp8.cpp"
#include "hwy/foreach_target.h"

#include <algorithm>
#include <array>
#include <utility>

#include "device/cpu/lanes16-inl.h"
#include "device/quant/fp8_kernels.h"
#include "device/quant/fp8_layout.h"

#if COPRIME_SIMD
HWY_BEFORE_NAMESPACE();
namespace coprime::HWY_NAMESPACE {
namespace {

#undef COPRIME_UNROLL
#define COPRIME_UNROLL _Pragma("GCC unroll 16")

constexpr Isa kIsa = kParts == 2 ? Isa::kAvx2 : Isa::kAvx512;
constexpr int64_t kFewRows = 3, kPanelRows = 90, kPrefetchBytes = 2048;

using Words = hn::Rebind<int32_t, FloatTag>;
struct Codes {
  hn::Vec<Words> part[kParts];  // four columns of 16 rows
};
HWY_INLINE Codes load_codes(const std::byte* at) {
  Codes codes;
  COPRIME_PARTS codes.part[i] = hn::LoadU(Words(), reinterpret_cast<const int32_t*>(at) + i * kRegisterLanes);
  return codes;
}

// Column kByte of four: the code's sign, exponent and mantissa at the place of an f32's. Its value times 2^-120.
template <int kByte>
HWY_INLINE Lanes tiny_values(const Codes& codes) {
  Lanes values;
  COPRIME_PARTS {
    const auto top = hn::ShiftLeft<8 * (3 - kByte)>(codes.part[i]);
    const auto fields = hn::And(hn::ShiftRight<4>(top), hn::Set(Words(), static_cast<int32_t>(0x87f00000u)));
    values.part[i] = hn::BitCast(kFloats, fields);
  }
  return values;
}

constexpr float kTinyValue = 0x1p-120f;

HWY_INLINE Lanes load_scales(const std::byte* block) { return load(reinterpret_cast<const float*>(block)); }

// An output tile's place in y, of which the last may have fewer rows.
HWY_INLINE Lanes load_outputs(const LinearWork& work, int64_t row, int64_t tile) {
  const int64_t at = tile * kQuantRows, left = work.rows - at;
  const float* y = work.y.row(row) + at;
  return left >= kQuantRows ? load(y) : load_first(y, left);
}
HWY_INLINE void store_outputs(const LinearWork& work, int64_t row, int64_t tile, Lanes sum, bool last) {
  const int64_t at = tile * kQuantRows, left = work.rows - at;
  float* y = work.y.row(row) + at;
  if (left >= kQuantRows) {
    store(last && work.bias != nullptr ? sum + load(work.bias + at) : sum, y);
  } else {
    store_first(last && work.bias != nullptr ? sum + load_first(work.bias + at, left) : sum, y, left);
  }
}

// Four columns of kTiles tiles with one row of x, which takes up the exponent.
template <int kTiles>
HWY_INLINE void add_quad(const std::byte* quads, int64_t stride, const float* x, Lanes (&sum)[kTiles]) {
  Lanes xs[4];
  COPRIME_UNROLL for (int c = 0; c < 4; ++c) xs[c] = broadcast(x[c]) * broadcast(kFp8SumScale / kTinyValue);
  COPRIME_UNROLL for (int t = 0; t < kTiles; ++t) {
    const Codes codes = load_codes(quads + t * stride);
    __builtin_prefetch(quads + t * stride + kPrefetchBytes);
    add_product(sum[t], tiny_values<0>(codes), xs[0]);
    add_product(sum[t], tiny_values<1>(codes), xs[1]);
    add_product(sum[t], tiny_values<2>(codes), xs[2]);
    add_product(sum[t], tiny_values<3>(codes), xs[3]);
  }
}

// Tiles [tile, tile + kTiles) with one row of x.
template <int kTiles>
HWY_NOINLINE void multiply_tiles(const LinearWork& work, int64_t row, int64_t tile) {
  const int64_t blocks = work.x.columns / kFp8Columns, stride = blocks * kFp8TileBlockBytes;
  const std::byte* block = work.weight + tile * stride;
  alignas(64) float y[kTiles][kQuantRows] = {};
  for (int64_t b = 0; b < blocks; ++b, block += kFp8TileBlockBytes) {
    Lanes sum[kTiles];
    COPRIME_UNROLL for (int t = 0; t < kTiles; ++t) sum[t] = zero();
    const float* x = work.x.row(row) + b * kFp8Columns;
    const std::byte* quads = block + kFp8ScaleBytes;
    for (int64_t quad = 0; quad < kFp8Quads; ++quad, quads += kFp8QuadBytes, x += 4)
      add_quad<kTiles>(quads, stride, x, sum);
    COPRIME_UNROLL for (int t = 0; t < kTiles; ++t) {
      const Lanes scale = load_scales(block + t * stride) * broadcast(1 / kFp8SumScale);
      store(fma(scale, sum[t], load(y[t])), y[t]);
    }
  }
  COPRIME_UNROLL for (int t = 0; t < kTiles; ++t) store_outputs(work, row, tile + t, load(y[t]), true);
}

void multiply_few(const LinearWork& work) {
  int64_t tile = work.first_tile;
  for (; tile + 4 <= work.last_tile; tile += 4) {
    for (int64_t row = 0; row < work.x.rows; ++row) multiply_tiles<4>(work, row, tile);
  }
  for (; tile < work.last_tile; ++tile) {
    for (int64_t row = 0; row < work.x.rows; ++row) multiply_tiles<1>(work, row, tile);
  }
}

HWY_INLINE void widen_block(const std::byte* block, float* panel) {
  const Lanes unit = broadcast(1 / kTinyValue);
  for (int64_t quad = 0; quad < kFp8Quads; ++quad, panel += 4 * kQuantRows) {
    const Codes codes = load_codes(block + kFp8ScaleBytes + quad * kFp8QuadBytes);
    store(tiny_values<0>(codes) * unit, panel);
    store(tiny_values<1>(codes) * unit, panel + kQuantRows);
    store(tiny_values<2>(codes) * unit, panel + 2 * kQuantRows);
    store(tiny_values<3>(codes) * unit, panel + 3 * kQuantRows);
  }
}

// Sums without the factor 2^-40: the same bits, as all that it changes are exponents.
HWY_NOINLINE void multiply_rows(const LinearWork& work) {
  static const LinearFn kMultiply = [] {
    const auto kernels = linear_kernels();
    return kernels[static_cast<size_t>(select_kernel(kernels, {kIsa, DType::kF32}))].fn;
  }();
  const int64_t blocks = work.x.columns / kFp8Columns;
  alignas(64) float panel[kFp8Columns * kQuantRows], sums[kPanelRows * kQuantRows];
  for (int64_t row = 0; row < work.x.rows; row += kPanelRows) {
    const View x = work.x.row_range(row, std::min(kPanelRows, work.x.rows - row));
    for (int64_t tile = work.first_tile; tile < work.last_tile; ++tile) {
      for (int64_t b = 0; b < blocks; ++b) {
        const std::byte* block = work.weight + (tile * blocks + b) * kFp8TileBlockBytes;
        widen_block(block, panel);
        kMultiply({reinterpret_cast<const std::byte*>(panel), nullptr, kQuantRows, 0, 1,
                   x.column_range(b * kFp8Columns, kFp8Columns), make_view(sums, x.rows, kQuantRows)});
        const Lanes scale = load_scales(block);
        for (int64_t r = 0; r < x.rows; ++r) {
          const Lanes before = b == 0 ? zero() : load_outputs(work, row + r, tile);
          store_outputs(work, row + r, tile, fma(scale, load(sums + r * kQuantRows), before), b + 1 == blocks);
        }
      }
    }
  }
}

// With no columns y is the bias.
void multiply_nothing(const LinearWork& work) {
  for (int64_t row = 0; row < work.x.rows; ++row) {
    for (int64_t tile = work.first_tile; tile < work.last_tile; ++tile) store_outputs(work, row, tile, zero(), true);
  }
}

void multiply(const LinearWork& work) {
  if (work.x.columns == 0) return multiply_nothing(work);
  if (work.x.rows <= kFewRows) return multiply_few(work);
  multiply_rows(work);
}

void widen(const WidenWork& work) {
  alignas(64) float panel[kFp8Columns * kQuantRows];
  const int64_t end = work.first + work.count;
  for (int64_t b = work.first / kFp8Columns; b * kFp8Columns < end; ++b) {
    const std::byte* block = work.tile + b * kFp8TileBlockBytes;
    widen_block(block, panel);
    const Lanes scale = load_scales(block);
    const int64_t last = std::min(end, (b + 1) * kFp8Columns);
    for (int64_t k = std::max(work.first, b * kFp8Columns); k < last; ++k) {
      const Lanes value = load(panel + (k - b * kFp8Columns) * kQuantRows);
      store(value * scale + zero(), work.out + (k - work.first) * kQuantRows);
    }
  }
}

constexpr Fp8Functions kFunctions = {multiply, widen};

}  // namespace
}  // namespace coprime::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // COPRIME_SIMD

#if HWY_ONCE
namespace coprime {

std::span<const KernelRow<const Fp8Functions*>> fp8_kernels() {
  static const std::array<KernelRow<const Fp8Functions*>, 3> kTable = {{
      {Isa::kAvx512, DType::kFp8, "fp8 avx512", OrderClass::kScaledBlocks, &N_AVX3::kFunctions},
      {Isa::kAvx2, DType::kFp8, "fp8 avx2", OrderClass::kScaledBlocks, &N_AVX2::kFunctions},
      {Isa::kReference, DType::kFp8, "fp8 reference", OrderClass::kScaledBlocks, &fp8_reference()},
  }};
  return kTable;
}

}  // namespace coprime
#endif  // HWY_ONCE
