// The arithmetic of products with quantised weights.
#pragma once

#include <cstdint>

namespace coprime {

enum class MathMode : uint8_t {
  kF32,    // weights widened, activations as they are
  kSplit,  // activations rounded to 15 bits a block of 32 columns, in two parts of a byte
  kFast,   // to 8 bits
};

constexpr const char* math_name(MathMode math) {
  return math == MathMode::kF32 ? "f32" : math == MathMode::kSplit ? "split" : "fast";
}

}  // namespace coprime
