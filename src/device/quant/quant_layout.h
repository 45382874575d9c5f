// How quantised weights lie in memory: tiles of 16 rows, whose blocks follow each other so that a product reads memory
// in one ascending stream. Owns packing and the exact way back; nothing is rounded. Sizes are those of the file's
// blocks, but for the factors of Q3_K, Q4_K and Q5_K, which take a byte each (3.6, 2.8 and 2.3 % more).
//
// A vector of 64 bytes holds 16 rows in lanes of 32 bits; byte p of a lane belongs to column 4 c + {0, 2, 1, 3}[p] of
// chunk c. (Masking the even bytes, or shifting down the odd ones, then leaves pairs of columns in their order.)
//   4 low bits:  vector v has chunk 2 v in the low nibbles, 2 v + 1 in the high ones.
//   2 bits:      vector v has chunk 4 v + i in bits 2 i and 2 i + 1.
//   1 high bit:  chunk c in bit c.
//   8 low bits:  vector c has chunk c.
// FP8's blocks of 128 lie as fp8_layout.h explains them; what is said of every block type here holds for them, too.
// Invariant: rows past the last one are zero bits throughout, and so are their scales.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/quant/fp8_layout.h"
#include "device/quant/quant_format.h"

namespace coprime {

constexpr int kColumnOfByte[4] = {0, 2, 1, 3};

constexpr int64_t quant_tiles(int64_t rows) { return (rows + kQuantRows - 1) / kQuantRows; }

// Bytes of a tile of rows of `blocks` blocks of 32: a multiple of kSuperBlocks where the format has factors, of four of
// FP8.
constexpr int64_t quant_tile_bytes(DType type, int64_t blocks) {
  if (type == DType::kFp8) return blocks * kQuantBlock / kFp8Columns * kFp8TileBlockBytes;
  const QuantFormat format = quant_format(type);
  return blocks * format.block_bytes() + blocks / kSuperBlocks * format.header_bytes();
}

// Where a block of a tile begins, and the header that it shares: itself where the format has none.
constexpr int64_t quant_header_at(DType type, int64_t block) {
  return quant_tile_bytes(type, quant_format(type).super() ? block / kSuperBlocks * kSuperBlocks : block);
}
constexpr int64_t quant_block_at(DType type, int64_t block) {
  return quant_tile_bytes(type, block) + quant_format(type).header_bytes();
}

// Packs row `row` of the file's type, whole blocks, into the zeroed tiles.
void pack_quant_row(DType type, std::span<const std::byte> blocks, int64_t row, std::byte* tiles);

// A block of one row, as quant_format.h explains it.
struct QuantBlock {
  int16_t value[kQuantBlock];
  float scale, minimum[2];
};
QuantBlock read_quant_block(DType type, const std::byte* tile, int lane, int64_t block);

// Elements [first, first + count) of row `row`: scale * value + minimum, the product exact, the sum rounded once.
void read_quant_row(DType type, const std::byte* tiles, int64_t blocks, int64_t row, int64_t first, int64_t count,
                    float* out);

}  // namespace coprime
