// Where a checkpoint's reader puts the part of one tensor that a rank holds. The device behind it packs the rows as
// they come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace coprime {

class WeightSink {
 public:
  virtual ~WeightSink() = default;
  // Rows [first, first + count) of the local tensor, row-major, `columns` elements of the file's type each. Every local
  // row arrives exactly once, in ascending order; fill rows and columns are there with their fill.
  virtual void rows(int64_t first, int64_t count, std::span<const std::byte> bytes) = 0;
};

}  // namespace coprime
