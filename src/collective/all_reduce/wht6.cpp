#include "collective/all_reduce/wht6.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/number_formats.h"
#include "collective/all_reduce/rank_order_sum.h"

namespace coprime {
namespace {

constexpr uint16_t kBf16One = 0x3f80;

// Where the code of an element of a group lies: the byte of the chunk that its first bit is in, and that bit's place.
// A code may reach into the next byte of its lane's string, which may lie in the lane's next 16 bytes.
struct CodeBits {
  size_t first_byte, second_byte;
  int shift;
};

CodeBits code_bits(int group, int element) {
  const int lane = group % 4 * 8 + element / 8, iteration = group / 4;
  const int bit = (iteration * 8 + element % 8) * 6;
  const auto place = [&](int byte) { return static_cast<size_t>(16 * (byte / 16 * 32 + lane) + byte % 16); };
  return {place(bit / 8), place(std::min(bit / 8 + 1, 47)), bit % 8};
}

void put_code(std::byte* chunk, int group, int element, int code) {
  const CodeBits at = code_bits(group, element);
  chunk[at.first_byte] |= static_cast<std::byte>(code << at.shift & 0xff);
  if (at.shift > 2) chunk[at.second_byte] |= static_cast<std::byte>(code >> (8 - at.shift));
}

int get_code(const std::byte* chunk, int group, int element) {
  const CodeBits at = code_bits(group, element);
  const int both = static_cast<int>(chunk[at.first_byte]) | static_cast<int>(chunk[at.second_byte]) << 8;
  return both >> at.shift & 63;
}

uint16_t group_scale(std::span<const float, kWht6Group> values) {
  float largest = 0;
  for (const float value : values) {
    if (!std::isfinite(value)) return kNan16;
    largest = std::max(largest, std::fabs(value));
  }
  const uint16_t scale = f32_to_bf16(largest / 31);
  return bf16_to_f32(scale) > 0 ? scale : kBf16One;
}

}  // namespace

void walsh_hadamard(std::span<float, kWht6Group> values) {
  for (size_t apart = 1; apart < kWht6Group; apart *= 2) {
    for (size_t i = 0; i < kWht6Group; ++i) {
      if ((i & apart) != 0) continue;
      const float a = values[i], b = values[i + apart];
      values[i] = a + b;
      values[i + apart] = a - b;
    }
  }
  for (float& value : values) value *= 0.125f;
}

Wht6Vector wht6_encode(DType type, const std::byte* vector, int64_t elements) {
  COPRIME_CHECK(elements % kWht6Group == 0, "{} elements", elements);
  const int64_t chunks = wht6_chunks(elements);
  Wht6Vector wire{std::vector<std::byte>(static_cast<size_t>(chunks * kWht6ChunkBytes)),
                  std::vector<uint16_t>(static_cast<size_t>(chunks * kWht6ChunkGroups))};
  std::array<float, kWht6Group> values;
  for (int64_t group = 0; group < chunks * kWht6ChunkGroups; ++group) {
    for (int64_t i = 0; i < kWht6Group; ++i) {
      const int64_t index = group * kWht6Group + i;
      values[static_cast<size_t>(i)] = index < elements ? load_element(type, vector, index) : 0;
    }
    walsh_hadamard(values);
    const uint16_t scale = group_scale(values);
    wire.scales[static_cast<size_t>(group)] = scale;
    std::byte* const chunk = wire.codes.data() + group / kWht6ChunkGroups * kWht6ChunkBytes;
    for (int i = 0; i < kWht6Group; ++i) {
      const float steps = std::nearbyint(values[static_cast<size_t>(i)] / bf16_to_f32(scale));
      // A group without a scale has no codes worth telling apart.
      const int code = scale == kNan16 ? 0 : static_cast<int>(std::clamp(steps, -32.0f, 31.0f)) + 32;
      put_code(chunk, static_cast<int>(group % kWht6ChunkGroups), i, code);
    }
  }
  return wire;
}

void wht6_sum(DType type, std::span<const Wht6Vector> terms, int64_t elements, std::byte* out) {
  std::array<float, kWht6Group> sums;
  for (int64_t group = 0; group < elements / kWht6Group; ++group) {
    for (int i = 0; i < kWht6Group; ++i) {
      float& sum = sums[static_cast<size_t>(i)];
      for (size_t rank = 0; rank < terms.size(); ++rank) {
        const std::byte* const chunk = terms[rank].codes.data() + group / kWht6ChunkGroups * kWht6ChunkBytes;
        const int code = get_code(chunk, static_cast<int>(group % kWht6ChunkGroups), i);
        const float term = static_cast<float>(code - 32) * bf16_to_f32(terms[rank].scales[static_cast<size_t>(group)]);
        sum = rank == 0 ? term : sum + term;
      }
    }
    walsh_hadamard(sums);
    for (int i = 0; i < kWht6Group; ++i) store_element(type, sums[static_cast<size_t>(i)], out, group * kWht6Group + i);
  }
}

}  // namespace coprime
