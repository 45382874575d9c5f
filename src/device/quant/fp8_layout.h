// How FP8 weights (DType::kFp8: e4m3 codes, an f32 scale for 128 columns of a row) lie in memory: tiles of 16 rows,
// whose blocks of 128 columns follow each other. Owns packing and the exact way back; nothing is rounded.
//
// A block is 16 scales, then 32 vectors of 64 bytes; vector i holds 16 rows in lanes of 32 bits, columns 4 i to 4 i + 3
// in their bytes, ascending. Shifted to the place of an f32's sign, exponent and mantissa, the bits of a code are its
// value times 2^-120, also where it is subnormal.
// Invariant: rows past the last one are zero bits throughout, and so are their scales.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace coprime {

constexpr int64_t kFp8Columns = 128;  // of a block
constexpr int64_t kFp8Quads = kFp8Columns / 4, kFp8ScaleBytes = 16 * 4, kFp8QuadBytes = 16 * 4;
constexpr int64_t kFp8TileBlockBytes = kFp8ScaleBytes + kFp8Quads * kFp8QuadBytes;  // of 16 rows

// Packs row `row`, whole blocks of 132 bytes, into the zeroed tiles.
void pack_fp8_row(std::span<const std::byte> blocks, int64_t row, std::byte* tiles);

// Elements [first, first + count) of row `row` of tiles of `blocks` blocks: the code's value times the scale.
void read_fp8_row(const std::byte* tiles, int64_t blocks, int64_t row, int64_t first, int64_t count, float* out);

// Of one row of a tile's block.
struct Fp8Block {
  float value[kFp8Columns];
  float scale;
};
Fp8Block read_fp8_block(const std::byte* block, int lane);

}  // namespace coprime
