#include "tl/inputs.h"

#include <array>

#include "base/number_formats.h"

namespace coprime::tl {
namespace {

// bf16 of -2 + i / 64.
constexpr int kValues = 256;
std::array<uint16_t, kValues> make_table() {
  std::array<uint16_t, kValues> table;
  for (int i = 0; i < kValues; ++i) table[static_cast<size_t>(i)] = f32_to_bf16(-2.f + static_cast<float>(i) / 64);
  return table;
}

// SplitMix64's finalizer: eight columns from each step of the counter.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

void fill(uint64_t seed, uint64_t tensor, int head, int64_t row, std::span<uint16_t> out) {
  static const std::array<uint16_t, kValues> table = make_table();
  uint64_t counter = mix(seed + tensor * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(head)) +
                     static_cast<uint64_t>(row) * 0x632be59bd9b4e019;
  for (size_t at = 0; at < out.size(); at += 8) {
    counter += 0x9e3779b97f4a7c15;
    uint64_t bits = mix(counter);
    for (size_t i = at; i < at + 8 && i < out.size(); ++i, bits >>= 8) out[i] = table[bits & 255];
  }
}

}  // namespace

void CounterInputs::query(int head, int64_t row, std::span<uint16_t> out) const { fill(seed_, 1, head, row, out); }
void CounterInputs::key(int head, int64_t token, std::span<uint16_t> out) const { fill(seed_, 2, head, token, out); }
void CounterInputs::value(int head, int64_t token, std::span<uint16_t> out) const { fill(seed_, 3, head, token, out); }

}  // namespace coprime::tl
