// AMX's tiles in plain C++, as Intel's manual describes their instructions: kernels for tiles run over these on a CPU
// that has none.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/number_formats.h"
#include "device/amx_tiles.h"

namespace coprime::testing {

class SoftwareTiles {
 public:
  ~SoftwareTiles() { EXPECT_FALSE(configured_) << "tiles were not released"; }

  void configure(const TileShapes& shapes) {
    shapes_ = shapes;
    configured_ = true;
    for (auto& tile : tiles_) std::memset(tile, 0, sizeof tile);
  }
  void release() { configured_ = false; }

  template <int kTile>
  void zero() {
    std::memset(tiles_[kTile], 0, sizeof tiles_[kTile]);
  }
  template <int kTile>
  void load(const void* from, int64_t stride) {
    const TileShape shape = used<kTile>();
    zero<kTile>();
    for (int r = 0; r < shape.rows; ++r) {
      std::memcpy(tiles_[kTile][r], static_cast<const std::byte*>(from) + r * stride,
                  static_cast<size_t>(shape.row_bytes));
    }
  }
  template <int kTile>
  void store(void* to, int64_t stride) {
    const TileShape shape = used<kTile>();
    for (int r = 0; r < shape.rows; ++r) {
      std::memcpy(static_cast<std::byte*>(to) + r * stride, tiles_[kTile][r], static_cast<size_t>(shape.row_bytes));
    }
  }

  // Even and odd columns have a sum each; every step is fused and flushes what is subnormal.
  template <int kC, int kA, int kB>
  void dot_bf16() {
    const TileShape c = used<kC>(), a = used<kA>();
    check_product(c, a, used<kB>());
    for (int m = 0; m < c.rows; ++m) {
      for (int n = 0; n < c.row_bytes / 4; ++n) {
        float even = 0, odd = 0;
        for (int k = 0; k < a.row_bytes / 4; ++k) {
          even = flushed(std::fma(bfloat(kA, m, 2 * k), bfloat(kB, k, 2 * n), even));
          odd = flushed(std::fma(bfloat(kA, m, 2 * k + 1), bfloat(kB, k, 2 * n + 1), odd));
        }
        float sum;
        std::byte* at = tiles_[kC][m] + 4 * n;
        std::memcpy(&sum, at, sizeof sum);
        sum = flushed(sum + flushed(even + odd));
        std::memcpy(at, &sum, sizeof sum);
      }
    }
  }

  template <int kC, int kA, int kB>
  void dot_bytes() {
    const TileShape c = used<kC>(), a = used<kA>();
    check_product(c, a, used<kB>());
    for (int m = 0; m < c.rows; ++m) {
      for (int n = 0; n < c.row_bytes / 4; ++n) {
        int32_t sum;
        std::byte* at = tiles_[kC][m] + 4 * n;
        std::memcpy(&sum, at, sizeof sum);
        for (int k = 0; k < a.row_bytes; ++k) {
          sum += static_cast<int8_t>(tiles_[kA][m][k]) * static_cast<uint8_t>(tiles_[kB][k / 4][4 * n + k % 4]);
        }
        std::memcpy(at, &sum, sizeof sum);
      }
    }
  }

 private:
  static float flushed(float value) { return std::abs(value) < 0x1p-126f ? std::copysign(0.0f, value) : value; }

  float bfloat(int tile, int row, int column) const {
    uint16_t bits;
    std::memcpy(&bits, tiles_[tile][row] + 2 * column, sizeof bits);
    return flushed(bf16_to_f32(bits));
  }

  template <int kTile>
  TileShape used() const {
    EXPECT_TRUE(configured_);
    return shapes_.tile[kTile];
  }

  // Shapes that the CPU would refuse.
  static void check_product(TileShape c, TileShape a, TileShape b) {
    ASSERT_TRUE(c.rows == a.rows && a.row_bytes == 4 * b.rows && c.row_bytes == b.row_bytes)
        << c.rows << " x " << c.row_bytes << ", " << a.rows << " x " << a.row_bytes << ", " << b.rows << " x "
        << b.row_bytes;
  }

  TileShapes shapes_;
  bool configured_ = false;
  std::byte tiles_[8][16][64];
};

}  // namespace coprime::testing
