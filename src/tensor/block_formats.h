// What the bytes of each format stand for, as float: the definition that every kernel is held to. Bit for bit what
// PyPI's package `gguf` computes (scripts/oracles/block_formats.py), every product and sum rounded alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace coprime {

// `blocks` blocks of `type` (any float type or block type; a plain type's block is one element) to
// block_shape(type).elements floats each. No alignment is asked for.
void dequantize(DType type, const std::byte* from, int64_t blocks, float* to);

// The first of the blocks that has a scale which is no finite number (of MXFP4 0xFF, which the format calls NaN), or an
// element of FP8 that is none; -1 if none has. Plain types have no scales.
int64_t find_bad_scale(DType type, const std::byte* from, int64_t blocks);

}  // namespace coprime
