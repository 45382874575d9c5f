#include "device/cpu/quant/activations.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "device/cpu/quant/quant_layout.h"

namespace coprime {
namespace {

constexpr uint32_t kInfinityBits = 0x7f800000;

void put_integers(ActivationForm form, const int16_t (&q)[kQuantBlock], std::byte* out) {
  if (form == ActivationForm::kHalves) {
    std::memcpy(out, q, sizeof q);
    return;
  }
  for (int i = 0; i < kQuantBlock; ++i) {
    const int value = q[i / 4 * 4 + kColumnOfByte[i % 4]];
    if (form == ActivationForm::kOneByte) {
      out[i] = static_cast<std::byte>(value);
    } else {
      const int hi = (value + 64) >> 7;
      out[i] = static_cast<std::byte>(hi);
      out[kQuantBlock + i] = static_cast<std::byte>(value - 128 * hi);
    }
  }
}

}  // namespace

ActivationScale activation_scale(uint32_t magnitude_bits, MathMode math) {
  if (magnitude_bits >= kInfinityBits) return {std::numeric_limits<float>::quiet_NaN(), 0};
  const float magnitude = std::bit_cast<float>(magnitude_bits);
  if (magnitude < 0x1p-100f) return {0, 0};
  const auto levels = static_cast<float>(math == MathMode::kFast ? kFastLevels : kSplitLevels);
  return {magnitude / levels, levels / magnitude};
}

void quantise_reference(const QuantiseWork& work) {
  const int64_t bytes = activation_block_bytes(work.out.form);
  for (int64_t r = work.first; r < work.last; ++r) {
    for (int64_t b = 0; b < work.out.blocks; ++b) {
      float spare[kQuantBlock];
      const float* x = activation_columns(work, r, b, spare);
      uint32_t magnitude = 0;
      for (int i = 0; i < kQuantBlock; ++i) magnitude = std::max(magnitude, std::bit_cast<uint32_t>(x[i]) & 0x7fffffff);
      const ActivationScale scale = activation_scale(magnitude, work.math);
      int16_t q[kQuantBlock] = {};
      ActivationBlock head = {};
      for (int i = 0; i < kQuantBlock && scale.inverse != 0; ++i) {
        q[i] = static_cast<int16_t>(std::nearbyint(x[i] * scale.inverse));
        head.integer_half_sum[i / 16] += q[i];
      }
      head.scale = scale.scale;
      head.integer_sum = head.integer_half_sum[0] + head.integer_half_sum[1];
      head.sum = head.scale * static_cast<float>(head.integer_sum);
      for (int half = 0; half < 2; ++half)
        head.half_sum[half] = head.scale * static_cast<float>(head.integer_half_sum[half]);
      std::byte* out = work.out.row(r) + b * bytes;
      std::memcpy(out, &head, sizeof head);
      put_integers(work.out.form, q, out + sizeof head);
    }
  }
}

void read_activations(ActivationForm form, const ActivationBlock& block, int16_t (&out)[kQuantBlock]) {
  const std::byte* in = block.integers();
  if (form == ActivationForm::kHalves) {
    std::memcpy(out, in, sizeof out);
    return;
  }
  for (int i = 0; i < kQuantBlock; ++i) {
    int value = static_cast<int8_t>(in[i]);
    if (form == ActivationForm::kTwoBytes) value = 128 * value + static_cast<int8_t>(in[kQuantBlock + i]);
    out[i / 4 * 4 + kColumnOfByte[i % 4]] = static_cast<int16_t>(value);
  }
}

}  // namespace coprime
