// Random contents of tensors, by counter: what element i of a tensor holds is a function of the seed, the tensor's name
// and i, so that any part can be made by any thread, and all machines make the same bytes (no libm, no fused
// multiplication, integers and exactly rounded operations only).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace coprime {

enum class Content : uint8_t {
  kNormalF32,   // bell-shaped: the sum of four uniform bytes, with mean `center` and standard deviation `spread`
  kNormalBf16,  // the same, rounded to bf16
  kUniformF32,  // uniform in center +- spread
  kUniformBf16,
  kE2m1Pairs,   // bytes of two random codes each; their standard deviation is kE2m1Deviation
  kE8m0Scales,  // 2^center, now and then its double or half
  kE4m3,        // random codes, no NaN; their standard deviation is kE4m3Deviation
};

struct RandomContent {
  Content kind = Content::kNormalBf16;
  float center = 0, spread = 0;
};

constexpr double kE2m1Deviation = 2.926, kE4m3Deviation = 107.24;

constexpr int content_bytes(Content kind) {
  switch (kind) {
    case Content::kNormalF32:
    case Content::kUniformF32:
      return 4;
    case Content::kNormalBf16:
    case Content::kUniformBf16:
      return 2;
    default:
      return 1;
  }
}

// Of a tensor: distinct for each name and seed.
uint64_t content_key(uint64_t seed, std::string_view tensor);

// Fills `out` with the elements from `first` on. `first` is a multiple of kFillBlock; only the last part of a tensor
// may have a length that is none.
constexpr int64_t kFillBlock = 1024;
void fill_random(const RandomContent& content, uint64_t key, int64_t first, std::span<std::byte> out);

}  // namespace coprime
