// AMX's eight tiles: registers of up to 16 rows of 64 bytes. Owns the instructions that kernels need, as members of a
// class, so that the same kernels run over tiles in software where there is no AMX (testing/software_tiles.h).
// Invariant: a kernel configures before it uses tiles and releases them before it returns.
//
// What the products compute, with A of m rows and B of n lanes of 32 bits in each row:
//   dot_bf16  C[m][n] += sum over pairs k of A[m][2k] B[k][2n] + A[m][2k+1] B[k][2n+1], as tdpbf16ps adds;
//   dot_bytes C[m][n] += sum over words k, i < 4 of A[m][4k+i] B[k][4n+i], A signed, B unsigned, in 32 bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace coprime {

struct TileShape {
  int rows = 0, row_bytes = 0;
};
struct TileShapes {
  TileShape tile[8];
};

class AmxTiles {
 public:
  void configure(const TileShapes& shapes) {
    struct alignas(64) Palette {
      uint8_t id = 1, start_row = 0, unused[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } palette;
    static_assert(sizeof(Palette) == 64);
    for (int i = 0; i < 8; ++i) {
      palette.rows[i] = static_cast<uint8_t>(shapes.tile[i].rows);
      palette.row_bytes[i] = static_cast<uint16_t>(shapes.tile[i].row_bytes);
    }
    asm volatile("ldtilecfg %0" ::"m"(palette));
  }
  void release() { asm volatile("tilerelease"); }

  template <int kTile>
  void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  // Rows lie `stride` bytes apart.
  template <int kTile>
  void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  void store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kC, int kA, int kB>
  void dot_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  }
  template <int kC, int kA, int kB>
  void dot_bytes() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  }
};

}  // namespace coprime
