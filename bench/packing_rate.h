// How fast one thread packs a matrix as it is loaded.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "device/packing.h"

namespace coprime {

// GB of the file's bytes a second of the thread's own time, the fastest of some passes over 1024 rows of 5120 columns,
// handed over in pieces as a checkpoint's reader does.
inline double packing_gb_s(DType type) {
  constexpr int64_t kRows = 1024, kColumns = 5120, kPiece = 100;
  const BlockShape shape = block_shape(type);
  const int64_t row_bytes = kColumns / shape.elements * shape.bytes;
  std::vector<std::byte> file(static_cast<size_t>(kRows * row_bytes));
  std::minstd_rand random(1);
  for (std::byte& byte : file) byte = static_cast<std::byte>(random() >> 8);
  const auto seconds = [] {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  double fastest = 1e9;  // seconds
  for (int pass = 0; pass < 7; ++pass) {
    Weight weight;
    weight.name = "weight";
    weight.rows = kRows;
    weight.columns = kColumns;
    BufferArena arena;
    const auto sink = make_packing_sink(weight, type, WeightUse::kLinear, 0, arena);
    const double begin = seconds();
    for (int64_t row = 0; row < kRows; row += kPiece) {
      const int64_t count = std::min(kPiece, kRows - row);
      sink->rows(row, count,
                 std::span<const std::byte>(file).subspan(static_cast<size_t>(row * row_bytes),
                                                          static_cast<size_t>(count * row_bytes)));
    }
    fastest = std::min(fastest, seconds() - begin);
  }
  return static_cast<double>(file.size()) / fastest * 1e-9;
}

}  // namespace coprime
