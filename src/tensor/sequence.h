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

// One attention layer's keys and values on one rank. A page of a layer is, in elements of `type`:
//   keys [kv_heads][head_dim][kPageTokens], then values [kv_heads][kPageTokens][head_dim]
struct KvView {
  std::byte* pages = nullptr;
  DType type = DType::kF32;  // F32, F16 or BF16
  int kv_heads = 0, head_dim = 0;

  int64_t elements_per_half() const { return int64_t{kv_heads} * head_dim * kPageTokens; }
  std::byte* keys(int32_t page, int kv_head) const {
    return pages + (page * 2 * elements_per_half() + int64_t{kv_head} * head_dim * kPageTokens) * dtype_bytes(type);
  }
  std::byte* values(int32_t page, int kv_head) const {
    return keys(page, kv_head) + elements_per_half() * dtype_bytes(type);
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
