#include "device/quant/fp8_layout.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/small_floats.h"
#include "tensor/dtype.h"

namespace coprime {
namespace {

constexpr int kRows = 16;
constexpr BlockShape kBlock = block_shape(DType::kFp8);
static_assert(kBlock.elements == kFp8Columns);

}  // namespace

void pack_fp8_row(std::span<const std::byte> blocks, int64_t row, std::byte* tiles) {
  const int64_t count = static_cast<int64_t>(blocks.size()) / kBlock.bytes, lane = row % kRows;
  COPRIME_CHECK(static_cast<int64_t>(blocks.size()) == count * kBlock.bytes, "{} bytes", blocks.size());
  std::byte* to = tiles + row / kRows * count * kFp8TileBlockBytes;
  for (const std::byte* from = blocks.data(); from != blocks.data() + blocks.size();
       from += kBlock.bytes, to += kFp8TileBlockBytes) {
    std::memcpy(to + lane * 4, from, 4);
    std::byte* quads = to + kFp8ScaleBytes + 4 * lane;
    for (int64_t quad = 0; quad < kFp8Quads; ++quad) std::memcpy(quads + quad * kFp8QuadBytes, from + 4 + 4 * quad, 4);
  }
}

Fp8Block read_fp8_block(const std::byte* block, int lane) {
  Fp8Block out;
  std::memcpy(&out.scale, block + 4 * lane, 4);
  for (int64_t k = 0; k < kFp8Columns; ++k) {
    const std::byte code = block[kFp8ScaleBytes + k / 4 * kFp8QuadBytes + 4 * lane + k % 4];
    out.value[k] = e4m3_to_f32(static_cast<uint8_t>(code));
  }
  return out;
}

void read_fp8_row(const std::byte* tiles, int64_t blocks, int64_t row, int64_t first, int64_t count, float* out) {
  const std::byte* tile = tiles + row / kRows * blocks * kFp8TileBlockBytes;
  for (int64_t k = first; k < first + count;) {
    const Fp8Block block = read_fp8_block(tile + k / kFp8Columns * kFp8TileBlockBytes, static_cast<int>(row % kRows));
    for (const int64_t end = std::min(first + count, (k / kFp8Columns + 1) * kFp8Columns); k < end; ++k) {
      *out++ = block.value[k % kFp8Columns] * block.scale + 0.0f;
    }
  }
}

}  // namespace coprime
