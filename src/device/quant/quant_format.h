// The formats of quantised weights as kernels see them: what a block of 32 elements of a row consists of, whatever file
// format it came from. Pure.
//
// Element k of a block is scale * value[k] + minimum[k / 16] with an integer value:
//   value = (code - offset), code of `low_bits + high_bits` bits, or of `codebook` where there is one; where factors
//   are per 16 elements, value = factor[k / 16] * (code - offset). A value fits 16 bits, and 32 of them times
//   activations of 15 bits fit a sum of 32 bits.
//   scale is d, or d * factor where one factor serves 32 elements: exact in float (11 and 8 bits).
//   minimum is m, or -(dmin * factor): exact too.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace coprime {

constexpr int kQuantBlock = 32;  // elements
constexpr int kQuantRows = 16;   // of a tile
constexpr int kQuantChunks = 8;  // of four columns, in a block
constexpr int kSuperBlocks = 8;  // blocks that share f16 scales, where the format has factors

struct QuantFormat {
  int low_bits = 0, high_bits = 0;  // of a code, stored apart
  int offset = 0;                   // the code of zero
  bool codebook = false;            // codes are those of e2m1, doubled: kE2m1Codes
  bool e8m0 = false;                // the scale is a power of two in 8 bits, else f16
  bool minimum = false;
  int factors = 0;  // a block: 0, 1 or 2 scales (and as many minima) of a byte, to f16 ones of 256 elements

  constexpr int max_code() const { return codebook ? 24 : (1 << (low_bits + high_bits)) - 1; }
  constexpr bool super() const { return factors > 0; }

  // Bytes of a tile's 16 rows, in their order: the header of 256 elements (scales, then minima); then for each block
  // scales, minima, high bits and low bits.
  constexpr int header_bytes() const { return super() ? (minimum ? 64 : 32) : 0; }
  constexpr int scale_bytes() const {
    if (!super()) return (e8m0 ? 16 : 32) + (minimum ? 32 : 0);
    return 32;  // a factor for scale and minimum each, or two of them; Q2_K has both in one byte
  }
  constexpr int high_at() const { return scale_bytes(); }
  constexpr int low_at() const { return high_at() + 64 * high_bits; }
  constexpr int block_bytes() const { return low_at() + 64 * low_bits; }
};

// A nibble of e2m1 by value, doubled and moved by 12: 0, .5, 1, 1.5, 2, 3, 4, 6 and their negatives.
constexpr uint8_t kE2m1Codes[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

constexpr QuantFormat quant_format(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return {.low_bits = 4, .offset = 8};
    case DType::kQ4_1:
      return {.low_bits = 4, .minimum = true};
    case DType::kMxfp4:
      return {.low_bits = 4, .offset = 12, .codebook = true, .e8m0 = true};
    case DType::kQ5_0:
      return {.low_bits = 4, .high_bits = 1, .offset = 16};
    case DType::kQ5_1:
      return {.low_bits = 4, .high_bits = 1, .minimum = true};
    case DType::kQ8_0:
      return {.low_bits = 8, .offset = 128};
    case DType::kQ2_K:
      return {.low_bits = 2, .minimum = true, .factors = 2};
    case DType::kQ3_K:
      return {.low_bits = 2, .high_bits = 1, .offset = 4, .factors = 2};
    case DType::kQ4_K:
      return {.low_bits = 4, .minimum = true, .factors = 1};
    case DType::kQ5_K:
      return {.low_bits = 4, .high_bits = 1, .minimum = true, .factors = 1};
    case DType::kQ6_K:
      return {.low_bits = 4, .high_bits = 2, .offset = 32, .factors = 2};
    default:
      return {};
  }
}

// All types of which is_block() is true, but FP8 (fp8_kernels.h).
constexpr DType kQuantTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ2_K,
                                 DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kMxfp4};

}  // namespace coprime
