// What a kernel holds: names for data in the PE's scratch memory and in its HBM region. Plain values, two-dimensional,
// rows first.
#pragma once

#include <cstdint>

namespace coprime::tl {

enum class Type : uint8_t { kBf16, kF32 };
constexpr int64_t bytes_of(Type type) { return type == Type::kBf16 ? 2 : 4; }

// Data in scratch memory. A view of other data has the same slot and another shape.
struct Tensor {
  uint32_t slot = 0, generation = 0;  // generation 0: no tensor
  int32_t rows = 0, columns = 0;
  Type type = Type::kF32;

  int64_t elements() const { return int64_t{rows} * columns; }
  int64_t bytes() const { return elements() * bytes_of(type); }
  explicit operator bool() const { return generation != 0; }
};

// A buffer of the launch in HBM, by its number there.
struct Buffer {
  uint32_t id = 0;
  Type type = Type::kBf16;
};

// rows x columns elements, contiguous, from element `offset` of a buffer on.
struct HbmRef {
  Buffer buffer;
  int64_t offset = 0;
  int32_t rows = 0, columns = 0;

  int64_t bytes() const { return int64_t{rows} * columns * bytes_of(buffer.type); }
  explicit operator bool() const { return rows != 0; }
};

// An attention state under way: [rows, 1], [rows, 1], [rows, d], all f32.
struct State {
  Tensor m, l, o;
};

}  // namespace coprime::tl
