// The 6-bit Walsh-Hadamard wire format of all-reduces over slow links: 6.25 bits an element, on the host. The reference
// of the kernels, bit for bit.
//
// 64 consecutive elements are a group. A group is transformed by the orthonormal Walsh-Hadamard matrix in natural
// order: butterflies (a, b) -> (a + b, a - b) of elements 1, 2, 4, 8, 16 and 32 apart, in this order, in f32, then
// times 1/8; the transform is its own inverse. Its scale is bf16(largest magnitude / 31), 1 where that is not above 0,
// NaN where a transformed value is not finite; a value's code is rint(value / scale), held within -32 and 31, plus 32.
//
// 32 groups are a chunk of 1536 bytes of codes. Lane L of 32, iteration t of 8 and element i of 8 stand for group 4t +
// L / 8 of the chunk, element 8 (L % 8) + i; its code begins at bit 6 (8t + i) of the lane's string of 384 bits, whose
// u-th 16 bytes lie at 16 (32u + L) of the chunk. Scales lie apart, two bytes a group. What is missing of the last
// chunk is encoded as zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/dtype.h"

namespace coprime {

inline constexpr int kWht6Group = 64;
inline constexpr int kWht6ChunkElements = 2048;
inline constexpr int kWht6ChunkBytes = 1536;
inline constexpr int kWht6ChunkGroups = kWht6ChunkElements / kWht6Group;

constexpr int64_t wht6_chunks(int64_t elements) { return (elements + kWht6ChunkElements - 1) / kWht6ChunkElements; }

struct Wht6Vector {
  std::vector<std::byte> codes;  // wht6_chunks() * kWht6ChunkBytes
  std::vector<uint16_t> scales;  // bf16, kWht6ChunkGroups a chunk
};

// In place, its own inverse but for rounding.
void walsh_hadamard(std::span<float, kWht6Group> values);

// `elements` a multiple of 64; `type` BF16 or F16.
Wht6Vector wht6_encode(DType type, const std::byte* vector, int64_t elements);

// The ranks' vectors added in rank order in the transformed domain, fl(fl(q0 s0) + fl(q1 s1)) + ..., transformed back
// once, rounded once. One term is decoding.
void wht6_sum(DType type, std::span<const Wht6Vector> terms, int64_t elements, std::byte* out);

}  // namespace coprime
