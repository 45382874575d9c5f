// y = x W^T over tiles of 16 output rows. Vector lanes are output rows, x[k] is broadcast, and each output is one chain
// of fused multiply-adds with k ascending from +0: no split of the columns, so the bits are the same for every number
// of rows, tile grouping, thread count and target (OrderClass::kSequentialFma).
//
// Registers hold a block of R rows of x by T tiles; T falls as R grows. Long columns go in blocks, so that a block of x
// stays in the first cache: the accumulators then rest in y between blocks, exactly.
#include "device/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/linear.cpp"
#include "hwy/foreach_target.h"

#include "device/cpu/kernels.h"
#include "device/cpu/lanes16-inl.h"
#include "device/packing.h"

#if COPRIME_SIMD
HWY_BEFORE_NAMESPACE();
namespace coprime::HWY_NAMESPACE {
namespace {

#undef COPRIME_UNROLL
#define COPRIME_UNROLL _Pragma("GCC unroll 16")

constexpr int kMaxBlockRows = kParts == 2 ? 5 : 6;
constexpr int64_t kBlockColumns = 512;  // even: a block never cuts a pair
constexpr int64_t kPanelRows = 90;      // a multiple of kMaxBlockRows; their block of x stays in the second cache

// The weights of two columns of one tile, by storage type; single() is an odd last column.
struct TileBF16 {
  using Element = uint16_t;
  static constexpr bool kWholePairs = true;
  static HWY_INLINE void pair(const uint16_t* w, Lanes& even, Lanes& odd) { load_pairs(w, even, odd); }
  static HWY_INLINE Lanes single(const uint16_t* w) {
    Lanes even, odd;
    load_pairs(w, even, odd);
    return even;
  }
};
struct TileF16 {
  using Element = uint16_t;
  static constexpr bool kWholePairs = false;
  static HWY_INLINE void pair(const uint16_t* w, Lanes& even, Lanes& odd) {
    even = F16::load(w), odd = F16::load(w + 16);
  }
  static HWY_INLINE Lanes single(const uint16_t* w) { return F16::load(w); }
};
struct TileF32 {
  using Element = float;
  static constexpr bool kWholePairs = false;
  static HWY_INLINE void pair(const float* w, Lanes& even, Lanes& odd) { even = load(w), odd = load(w + 16); }
  static HWY_INLINE Lanes single(const float* w) { return load(w); }
};

template <class Tile>
int64_t tile_elements(int64_t columns) {
  return Tile::kWholePairs ? (columns + 1) / 2 * 32 : columns * 16;
}

// Sums of a block that y holds since the last block of columns: rows by tiles from output `output` on, into
// sums[rows][tiles][16].
HWY_NOINLINE void resume(const LinearWork& work, int64_t row, int rows, int64_t output, int tiles, float* sums) {
  for (int r = 0; r < rows; ++r) {
    for (int t = 0; t < tiles; ++t, sums += 16) {
      const int64_t at = output + 16 * t, left = work.rows - at;
      const float* y = work.y.row(row + r) + at;
      store(left >= 16 ? load(y) : load_first(y, left), sums);
    }
  }
}

// The way back; the bias after the last block.
HWY_NOINLINE void finish(const LinearWork& work, int64_t row, int rows, int64_t output, int tiles, bool last,
                         const float* sums) {
  const float* bias = last ? work.bias : nullptr;
  for (int r = 0; r < rows; ++r) {
    for (int t = 0; t < tiles; ++t, sums += 16) {
      const int64_t at = output + 16 * t, left = work.rows - at;
      float* y = work.y.row(row + r) + at;
      Lanes sum = load(sums);
      if (left >= 16) {
        if (bias != nullptr) sum = sum + load(bias + at);
        store(sum, y);
      } else {
        if (bias != nullptr) sum = sum + load_first(bias + at, left);
        store_first(sum, y, left);
      }
    }
  }
}

// R rows by T tiles over columns [begin, end). `tile` is the first tile's weights, tiles are `tile_stride` elements
// apart.
template <class Tile, int R, int T>
HWY_INLINE void multiply_block(const LinearWork& work, const typename Tile::Element* tile, int64_t tile_stride,
                               int64_t row, int64_t output, int64_t begin, int64_t end) {
  alignas(64) float sums[R][T][16] = {};
  if (begin > 0) resume(work, row, R, output, T, sums[0][0]);
  Lanes sum[R][T];
  const float* x[R];
  COPRIME_UNROLL for (int r = 0; r < R; ++r) {
    x[r] = work.x.row(row + r);
    COPRIME_UNROLL for (int t = 0; t < T; ++t) sum[r][t] = load(sums[r][t]);
  }

  const typename Tile::Element* w = tile + begin * 16;
  int64_t k = begin;
  for (; k + 2 <= end; k += 2, w += 32) {
    Lanes even[T], odd[T];
    COPRIME_UNROLL for (int t = 0; t < T; ++t) Tile::pair(w + t * tile_stride, even[t], odd[t]);
    COPRIME_UNROLL for (int r = 0; r < R; ++r) {
      const Lanes x0 = broadcast(x[r][k]);
      COPRIME_UNROLL for (int t = 0; t < T; ++t) add_product(sum[r][t], even[t], x0);
    }
    if constexpr (R > 1 && T > 1) {  // read the pairs again: holding both halves would spill sums
      asm("" : "+r"(w));
      COPRIME_UNROLL for (int t = 0; t < T; ++t) Tile::pair(w + t * tile_stride, even[t], odd[t]);
    }
    COPRIME_UNROLL for (int r = 0; r < R; ++r) {
      const Lanes x1 = broadcast(x[r][k + 1]);
      COPRIME_UNROLL for (int t = 0; t < T; ++t) add_product(sum[r][t], odd[t], x1);
    }
  }
  if (k < end) {
    COPRIME_UNROLL for (int t = 0; t < T; ++t) {
      const Lanes even = Tile::single(w + t * tile_stride);
      COPRIME_UNROLL for (int r = 0; r < R; ++r) add_product(sum[r][t], even, broadcast(x[r][k]));
    }
  }

  COPRIME_UNROLL for (int r = 0; r < R; ++r) {
    COPRIME_UNROLL for (int t = 0; t < T; ++t) store(sum[r][t], sums[r][t]);
  }
  finish(work, row, R, output, T, end == work.x.columns, sums[0][0]);
}

// All tiles of the work for R rows.
template <class Tile, int R, int T>
HWY_INLINE void multiply_tiles(const LinearWork& work, int64_t& tile, int64_t last, int64_t row, int64_t begin,
                               int64_t end) {
  const int64_t stride = tile_elements<Tile>(work.x.columns);
  const auto* weight = reinterpret_cast<const typename Tile::Element*>(work.weight);
  for (; tile + T <= last; tile += T) {
    multiply_block<Tile, R, T>(work, weight + tile * stride, stride, row, 16 * tile, begin, end);
  }
}

template <class Tile, int R>
HWY_NOINLINE void multiply_rows(const LinearWork& work, int64_t tile, int64_t last, int64_t row, int64_t begin,
                                int64_t end) {
  // Accumulators fill the registers: 16 of half a tile each, or 32 of a tile each.
  constexpr int kTiles = kParts == 2 ? (R == 1 ? 4 : R == 2 ? 2 : 1) : (R == 1 ? 8 : 4);
  if constexpr (kTiles >= 8) multiply_tiles<Tile, R, 8>(work, tile, last, row, begin, end);
  if constexpr (kTiles >= 4) multiply_tiles<Tile, R, 4>(work, tile, last, row, begin, end);
  if constexpr (kTiles == 2 || R == 1) multiply_tiles<Tile, R, 2>(work, tile, last, row, begin, end);
  multiply_tiles<Tile, R, 1>(work, tile, last, row, begin, end);
}

// Asks for part `part` of `parts` of columns [begin, end) of the tiles that come next.
template <class Tile>
HWY_INLINE void prefetch_part(const LinearWork& work, int64_t tile, int64_t tiles, int64_t begin, int64_t end,
                              int64_t part, int64_t parts) {
  using Element = typename Tile::Element;
  const int64_t bytes = (end - begin) * 16 * static_cast<int64_t>(sizeof(Element));
  for (int64_t t = tile; t < tile + tiles && t < work.last_tile; ++t) {
    const auto* panel =
        reinterpret_cast<const Element*>(work.weight) + t * tile_elements<Tile>(work.x.columns) + begin * 16;
    for (int64_t at = bytes * part / parts; at < bytes * (part + 1) / parts; at += 64) {
      __builtin_prefetch(reinterpret_cast<const std::byte*>(panel) + at);
    }
  }
}

template <class Tile>
void linear(const LinearWork& work) {
  using RowsFn = void (*)(const LinearWork&, int64_t, int64_t, int64_t, int64_t, int64_t);
  constexpr RowsFn kRows[] = {multiply_rows<Tile, 1>, multiply_rows<Tile, 2>, multiply_rows<Tile, 3>,
                              multiply_rows<Tile, 4>, multiply_rows<Tile, 5>, multiply_rows<Tile, 6>};
  const int64_t rows = work.x.rows, columns = work.x.columns;
  if (rows <= kMaxBlockRows) {  // weights pass once, whole
    if (rows > 0) kRows[rows - 1](work, work.first_tile, work.last_tile, 0, 0, columns);
    return;
  }
  constexpr int64_t kGroup = kParts == 2 ? 1 : 4;  // tiles that stay in the cache while the rows pass
  for (int64_t panel = 0; panel < rows; panel += kPanelRows) {
    const int64_t panel_rows = panel + kPanelRows < rows ? kPanelRows : rows - panel;
    const int64_t blocks = (panel_rows + kMaxBlockRows - 1) / kMaxBlockRows;
    int64_t begin = 0;
    do {
      const int64_t end = begin + kBlockColumns < columns ? begin + kBlockColumns : columns;
      for (int64_t tile = work.first_tile; tile < work.last_tile; tile += kGroup) {
        const int64_t last = tile + kGroup < work.last_tile ? tile + kGroup : work.last_tile;
        for (int64_t block = 0; block < blocks; ++block) {  // of nearly equal sizes
          prefetch_part<Tile>(work, tile + kGroup, kGroup, begin, end, block, blocks);
          const int64_t row = panel + panel_rows * block / blocks;
          const int64_t count = panel + panel_rows * (block + 1) / blocks - row;
          kRows[count - 1](work, tile, last, row, begin, end);
        }
      }
      begin = end;
    } while (begin < columns);
  }
}

}  // namespace
}  // namespace coprime::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // COPRIME_SIMD

#if HWY_ONCE
namespace coprime {

std::span<const KernelRow<LinearFn>> linear_kernels() {
  static constexpr KernelRow<LinearFn> kTable[] = {
      {Isa::kAvx512, DType::kBF16, "linear avx512 BF16", OrderClass::kSequentialFma, N_AVX3::linear<N_AVX3::TileBF16>},
      {Isa::kAvx512, DType::kF16, "linear avx512 F16", OrderClass::kSequentialFma, N_AVX3::linear<N_AVX3::TileF16>},
      {Isa::kAvx512, DType::kF32, "linear avx512 F32", OrderClass::kSequentialFma, N_AVX3::linear<N_AVX3::TileF32>},
      {Isa::kAvx2, DType::kBF16, "linear avx2 BF16", OrderClass::kSequentialFma, N_AVX2::linear<N_AVX2::TileBF16>},
      {Isa::kAvx2, DType::kF16, "linear avx2 F16", OrderClass::kSequentialFma, N_AVX2::linear<N_AVX2::TileF16>},
      {Isa::kAvx2, DType::kF32, "linear avx2 F32", OrderClass::kSequentialFma, N_AVX2::linear<N_AVX2::TileF32>},
  };
  return kTable;
}

}  // namespace coprime
#endif  // HWY_ONCE
