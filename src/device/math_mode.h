// The arithmetic of products with weights that have at most 16 bits an element.
#pragma once

#include <cstdint>

namespace coprime {

enum class MathMode : uint8_t {
  kF32,    // weights widened, activations as they are
  kSplit,  // activations in two parts: of a byte where they meet blocks (15 bits a block of 32 columns), of bf16 where
           // they meet BF16 and the CPU multiplies that
  kFast,   // in one part
};

constexpr const char* math_name(MathMode math) {
  return math == MathMode::kF32 ? "f32" : math == MathMode::kSplit ? "split" : "fast";
}

}  // namespace coprime
