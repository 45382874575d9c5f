#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "device/cpu/split_linear.h"
#include "hwy/base.h"

HWY_PUSH_ATTRIBUTES("avx2,fma")
namespace coprime {
namespace {

constexpr int kStep = 16;  // columns at a time

// The bits of bf16(x) in the lower half of each lane.
__m256i rounded(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i even = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), even);
  const __m256i nan = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_srli_epi32(_mm256_blendv_epi8(up, nan, is_nan), 16);
}

__m256 widened(__m256i bits) { return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16)); }

void store_step(__m256i first, __m256i second, std::byte* to) {
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(first, second), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), packed);
}

// 16 columns of a row to a place for each part.
void split_step(const float* x, int parts, std::byte* const* to) {
  __m256 first = _mm256_loadu_ps(x), second = _mm256_loadu_ps(x + 8);
  for (int p = 0; p < parts; ++p) {
    const __m256i first_bits = rounded(first), second_bits = rounded(second);
    store_step(first_bits, second_bits, to[p]);
    first = _mm256_sub_ps(first, widened(first_bits));
    second = _mm256_sub_ps(second, widened(second_bits));
  }
}

}  // namespace

void split_inputs(const SplitInputsWork& work) {
  const SplitInputs& out = work.out;
  for (int64_t r = work.first; r < work.last; ++r) {
    const int64_t group = r / out.group_rows() * out.group_rows();
    const int64_t group_rows = std::min<int64_t>(out.group_rows(), out.rows - group);
    for (int64_t c = 0; c < out.blocks() * kSplitColumns; c += kStep) {
      std::byte* to[2];
      for (int64_t p = 0; p < out.parts; ++p) {
        if (out.form == SplitForm::kWords) {
          to[p] = out.data + r * out.row_bytes() + (c / kStep * out.parts + p) * kStep * 2;
        } else {
          const int64_t block_row = c / kSplitColumns * group_rows * out.parts + p * group_rows + r - group;
          to[p] = out.data + group * out.row_bytes() + block_row * kSplitColumns * 2 + c % kSplitColumns * 2;
        }
      }
      if (c + kStep <= out.columns) {
        split_step(work.x.row(r) + c, out.parts, to);
      } else {
        std::array<float, kStep> tail = {};
        for (int64_t i = c; i < out.columns; ++i) tail[static_cast<size_t>(i - c)] = work.x.row(r)[i];
        split_step(tail.data(), out.parts, to);
      }
    }
  }
}

std::span<const KernelRow<SplitFunctions>> split_kernels() {
  static const std::vector<KernelRow<SplitFunctions>> kTable = [] {
    std::vector<KernelRow<SplitFunctions>> rows;
    for (const auto& part : {split_amx_rows(), split_avx512_bf16_rows()})
      rows.insert(rows.end(), part.begin(), part.end());
    return rows;
  }();
  return kTable;
}

}  // namespace coprime
HWY_POP_ATTRIBUTES
