// How a weight lies in a host device's memory. Owns the packing sink and the accessor that both host devices read
// through; the layouts themselves are declared in tensor/weight.h. Refuses element types that no kernel computes with.
// Invariant: rows past the last one of a tile, and the odd column past the last one of a pair, are zero (of blocks:
// their bytes).
#pragma once

#include <memory>

#include "device/device.h"
#include "tensor/weight.h"
#include "tensor/weight_sink.h"

namespace coprime {

constexpr int kTileRows = 16;

constexpr int64_t tiles_of(int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }

// Bytes of one tile of 16 rows; `columns` are whole blocks.
int64_t tile_bytes(DType type, int64_t columns);

// Device::pack() of the host devices. Adds the component kValues to `weight`, in the arena's memory, and fills it as
// rows arrive.
// Error(kModel) when `type` is none of F32, F16, BF16 and the block types.
std::unique_ptr<WeightSink> make_packing_sink(Weight& weight, DType type, WeightUse use, float offset,
                                              BufferArena& arena);

// One element of packed values, as float: exact for every type.
float packed_value(const Component& values, int64_t columns, int64_t row, int64_t column);

// One row, as float.
void dequantize_row(const Component& values, int64_t columns, int64_t row, float* out);

// A row of x as a weight with an input map wants it: weight.columns floats.
void place_inputs(const Weight& weight, const float* x, float* held);

// One row of a linear weight, widened, + 0.0f (so that a negative zero becomes positive, as embed() asks).
void unpack_row(const Component& values, int64_t columns, int64_t row, float* out);

// The values of a linear weight, checked: packed, and large enough for its shape.
const Component& linear_values(const Weight& weight);
// Its bias, or nullptr.
const float* linear_bias(const Weight& weight);

}  // namespace coprime
