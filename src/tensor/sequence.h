// What attention and recurrent layers need to know of a step's sequences, and the views of their memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace coprime {

// Keys and values are kept in pages of this many tokens at absolute positions: page i of a sequence holds tokens
// [64 i, 64 i + 64). It is also the block that attention folds, in token order.
constexpr int kPageTokens = 64;

// One sequence's rows in the matrices of a step.
struct SequenceSpan {
  int64_t first_row = 0, num_rows = 0;
  int64_t start = 0;               // absolute position of the first row's token
  std::span<const int32_t> pages;  // ids of the pages that hold tokens [0, start + num_rows)
  int state_in = -1;               // slot of the recurrent state before the first row; -1: zero
  int state_out = -1;              // slot that receives the state after the last row; may equal state_in
};

// One attention layer's keys and values on one rank. A page of a layer has a block for each KV head, so that one head's
// keys and values are read in one stream. In elements of `type`:
//   keys [head_dim][kPageTokens], then values [kPageTokens][head_dim]
// Each of the two is followed by kPageTokens floats if the type is F8_E4M3: an element of token t is the number that
// its bits say times scale t, the largest magnitude among the token's elements of this head divided by 448. (A token
// with a NaN or an infinity has a scale that is not finite: all of it reads as NaN.)
struct KvView {
  std::byte* pages = nullptr;
  DType type = DType::kF32;  // F32, F16, BF16 or F8_E4M3
  int kv_heads = 0, head_dim = 0;

  bool scaled() const { return type == DType::kF8E4M3; }
  int64_t elements() const { return int64_t{head_dim} * kPageTokens; }  // of a head's keys, and of its values
  // Of a head's keys with their scales, and of its values with theirs.
  int64_t half_bytes() const {
    return elements() * dtype_bytes(type) + (scaled() ? kPageTokens * int64_t{sizeof(float)} : 0);
  }
  int64_t page_bytes() const { return 2 * int64_t{kv_heads} * half_bytes(); }
  std::byte* keys(int32_t page, int kv_head) const {
    return pages + (int64_t{page} * kv_heads + kv_head) * 2 * half_bytes();
  }
  std::byte* values(int32_t page, int kv_head) const { return keys(page, kv_head) + half_bytes(); }
  // Of keys() or values(); null if the type has none.
  float* scales(std::byte* half) const {
    return scaled() ? reinterpret_cast<float*>(half + elements() * dtype_bytes(type)) : nullptr;
  }
};

// One recurrent layer's states on one rank, float:
//   recurrent slot: [value_heads][key_dim][value_dim];  convolution slot: [taps - 1][channels], oldest input first
struct StateView {
  float* recurrent = nullptr;
  float* convolution = nullptr;
  int64_t recurrent_stride = 0, convolution_stride = 0;  // elements from slot to slot
};

}  // namespace coprime
