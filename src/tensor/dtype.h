// Element types of checkpoints and of memory: plain ones, and blocks along a row, whose elements share scales.
#pragma once

#include <cstdint>
#include <string_view>

namespace coprime {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kI32,
  kI64,
  kU8,
  kF8E4M3,
  kF8E8M0,
  // Blocks along a row, as GGUF lays them out.
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kMxfp4,
  kFp8,  // of no file: the reader puts a row's e4m3 codes together with their scales
  kOther
};

// A block of a row: so many elements in so many bytes.
struct BlockShape {
  int elements = 1, bytes = 0;
};

// A plain type is a block of one element; kOther (a type that is known to exist and that nothing here computes with)
// has no bytes.
constexpr BlockShape block_shape(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kI32:
      return {1, 4};
    case DType::kF16:
    case DType::kBF16:
      return {1, 2};
    case DType::kI64:
      return {1, 8};
    case DType::kU8:
    case DType::kF8E4M3:
    case DType::kF8E8M0:
      return {1, 1};
    case DType::kQ4_0:
      return {32, 18};  // f16 scale, 16 bytes of nibbles
    case DType::kQ4_1:
      return {32, 20};  // f16 scale and minimum, nibbles
    case DType::kQ5_0:
      return {32, 22};  // f16 scale, 32 high bits, nibbles
    case DType::kQ5_1:
      return {32, 24};
    case DType::kQ8_0:
      return {32, 34};  // f16 scale, 32 signed bytes
    case DType::kQ2_K:
      return {256, 84};
    case DType::kQ3_K:
      return {256, 110};
    case DType::kQ4_K:
      return {256, 144};
    case DType::kQ5_K:
      return {256, 176};
    case DType::kQ6_K:
      return {256, 210};
    case DType::kMxfp4:
      return {32, 17};  // e8m0 scale, nibbles of e2m1
    case DType::kFp8:
      return {128, 132};  // f32 scale, e4m3 codes
    case DType::kOther:
      break;
  }
  return {1, 0};
}

constexpr bool is_block(DType type) { return block_shape(type).elements > 1; }

// Bytes of one element of a plain type; 0 for blocks and kOther.
constexpr int dtype_bytes(DType type) { return is_block(type) ? 0 : block_shape(type).bytes; }

constexpr bool is_float(DType type) { return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16; }

// "F32", "BF16", ...: the names of safetensors, and "Q4_K", ...: those of GGUF.
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
    case DType::kF8E4M3:
      return "F8_E4M3";
    case DType::kF8E8M0:
      return "F8_E8M0";
    case DType::kQ4_0:
      return "Q4_0";
    case DType::kQ4_1:
      return "Q4_1";
    case DType::kQ5_0:
      return "Q5_0";
    case DType::kQ5_1:
      return "Q5_1";
    case DType::kQ8_0:
      return "Q8_0";
    case DType::kQ2_K:
      return "Q2_K";
    case DType::kQ3_K:
      return "Q3_K";
    case DType::kQ4_K:
      return "Q4_K";
    case DType::kQ5_K:
      return "Q5_K";
    case DType::kQ6_K:
      return "Q6_K";
    case DType::kMxfp4:
      return "MXFP4";
    case DType::kFp8:
      return "FP8";
    case DType::kOther:
      break;
  }
  return "other";
}

}  // namespace coprime
