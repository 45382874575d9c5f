// Element types of checkpoints and of memory.
#pragma once

#include <cstdint>
#include <string_view>

namespace coprime {

enum class DType : uint8_t { kF32, kF16, kBF16, kI32, kI64, kU8, kOther };

// Bytes of one element; 0 for kOther (a type that is known to exist and that nothing here computes with).
constexpr int dtype_bytes(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kI64:
      return 8;
    case DType::kU8:
      return 1;
    case DType::kOther:
      break;
  }
  return 0;
}

constexpr bool is_float(DType type) { return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16; }

// "F32", "BF16", ...: the names of safetensors.
constexpr std::string_view dtype_name(DType type) {
  switch (type) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    case DType::kU8:
      return "U8";
    case DType::kOther:
      break;
  }
  return "other";
}

}  // namespace coprime
