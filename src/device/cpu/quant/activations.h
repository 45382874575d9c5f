// Activations as integers, for products with quantised weights. Owns the rounding: every kernel of every instruction
// set multiplies the same integers.
//
// A block is 32 columns of the held range of a weight. With m the largest magnitude in it, s = m / L and
// q = x * (L / m) rounded to the nearest even integer, where L is 16255 (kSplit: 15 bits, q = 128 hi + lo with two
// signed bytes) or 127 (kFast). A block whose m is below 2^-100 counts as zero; one that holds an infinity or a NaN
// has s = NaN, so that every output becomes NaN.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cpu/quant/quant_format.h"
#include "device/math_mode.h"
#include "tensor/view.h"

namespace coprime {

constexpr int kSplitLevels = 16255, kFastLevels = 127;

// How the integers lie, as the kernel that reads them likes; bytes are in the order of the weights (quant_layout.h).
enum class ActivationForm : uint8_t {
  kTwoBytes,  // 8 words of hi, 8 of lo; a word has four columns
  kOneByte,   // 8 words (kFast)
  kHalves,    // 16 words of two 16-bit integers, columns ascending
};

struct ActivationBlock {
  float scale;          // s
  float sum;            // s * integer_sum
  float half_sum[2];    // s * integer_half_sum
  int32_t integer_sum;  // of q, over the block and over its halves
  int32_t integer_half_sum[2];
  int32_t unused;  // the integers begin at a whole vector
  const std::byte* integers() const { return reinterpret_cast<const std::byte*>(this + 1); }
};
static_assert(sizeof(ActivationBlock) == 32);

constexpr int64_t activation_block_bytes(ActivationForm form) { return form == ActivationForm::kOneByte ? 64 : 96; }

// Rows of activation blocks, in memory of another. Rows lie a little more than whole cache lines apart: kernels read
// one word of several rows in a cycle, and words at the same place of different lines would wait for each other.
struct QuantActivations {
  std::byte* data = nullptr;
  int64_t rows = 0, blocks = 0;
  ActivationForm form = ActivationForm::kTwoBytes;

  int64_t row_bytes() const { return (blocks * activation_block_bytes(form) + 63) / 64 * 64 + 12; }
  std::byte* row(int64_t r) const { return data + r * row_bytes(); }
};

// Rows [first, last) of x, whose first column lies `lead` columns into the first block; columns before it, and after
// the last one, are zero.
struct QuantiseWork {
  View x;
  int64_t lead = 0;
  MathMode math = MathMode::kSplit;
  QuantActivations out;
  int64_t first = 0, last = 0;
};
using QuantiseFn = void (*)(const QuantiseWork&);

// In plain C++, and with AVX2: the same bits.
void quantise_reference(const QuantiseWork& work);
void quantise_avx2(const QuantiseWork& work);

// q of one block, whatever its form.
void read_activations(ActivationForm form, const ActivationBlock& block, int16_t (&out)[kQuantBlock]);

// A block of x with zeros where it has no columns: x itself where it has all of them.
inline const float* activation_columns(const QuantiseWork& work, int64_t row, int64_t block,
                                       float (&spare)[kQuantBlock]) {
  const int64_t begin = block * kQuantBlock - work.lead;
  const float* x = work.x.row(row);
  if (begin >= 0 && begin + kQuantBlock <= work.x.columns) return x + begin;
  for (int i = 0; i < kQuantBlock; ++i) {
    const int64_t column = begin + i;
    spare[i] = column >= 0 && column < work.x.columns ? x[column] : 0.0f;
  }
  return spare;
}

// s, and what to multiply x by, from the bits of the largest magnitude.
struct ActivationScale {
  float scale, inverse;
};
ActivationScale activation_scale(uint32_t magnitude_bits, MathMode math);

}  // namespace coprime
