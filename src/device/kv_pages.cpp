#include "device/kv_pages.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/number_formats.h"
#include "base/small_floats.h"

namespace coprime {
namespace {

struct StoreF32 {
  using Element = float;
  static float round(float value) { return value; }
};
struct StoreF16 {
  using Element = uint16_t;
  static uint16_t round(float value) { return f32_to_f16(value); }
};
struct StoreBF16 {
  using Element = uint16_t;
  static uint16_t round(float value) { return f32_to_bf16(value); }
};
struct StoreE4m3 {
  using Element = uint8_t;
  static uint8_t round(float value) { return f32_to_e4m3(value); }
};

// The scale of a token's elements of one head. Tiny ones, which would make it subnormal, count as zeros.
float scale_of(const float* x, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float magnitude = std::fabs(x[i]);
    if (!(magnitude <= largest)) largest = magnitude;  // a NaN, too, and it stays
    if (std::isnan(largest)) break;
  }
  const float scale = largest / kMaxE4m3;
  return scale < std::numeric_limits<float>::min() ? 0 : scale;
}

template <class Store>
void store(const KvView& kv, const SequenceSpan& span, const HeadsView& k, const HeadsView& v, int h) {
  using Element = typename Store::Element;
  for (int64_t done = 0; done < span.num_rows;) {  // the rows that share a page, at a time
    const int64_t position = span.start + done, slot = position % kPageTokens, row = span.first_row + done;
    const int64_t count = std::min(span.num_rows - done, kPageTokens - slot);
    const int32_t page = span.pages[static_cast<size_t>(position / kPageTokens)];
    std::byte *const key_half = kv.keys(page, h), *const value_half = kv.values(page, h);
    // What a token's elements are multiplied with before they are rounded.
    const auto factor = [&](float* scales, const float* x, int64_t token) {
      if (scales == nullptr) return 1.0f;
      const float scale = scales[slot + token] = scale_of(x, kv.head_dim);
      return scale == 0 ? 0 : 1 / scale;
    };
    auto* keys = reinterpret_cast<Element*>(key_half) + slot;
    auto* values = reinterpret_cast<Element*>(value_half) + slot * kv.head_dim;
    std::array<float, kPageTokens> factors;
    for (int64_t t = 0; t < count; ++t)
      factors[static_cast<size_t>(t)] = factor(kv.scales(key_half), k.head(row + t, h), t);
    for (int64_t d = 0; d < kv.head_dim; ++d) {
      for (int64_t t = 0; t < count; ++t)
        keys[d * kPageTokens + t] = Store::round(k.head(row + t, h)[d] * factors[static_cast<size_t>(t)]);
    }
    for (int64_t t = 0; t < count; ++t) {
      const float* in = v.head(row + t, h);
      const float by = factor(kv.scales(value_half), in, t);
      for (int64_t d = 0; d < kv.head_dim; ++d) values[t * kv.head_dim + d] = Store::round(in[d] * by);
    }
    done += count;
  }
}

}  // namespace

float page_value(DType type, const std::byte* data, int64_t index) {
  switch (type) {
    case DType::kF16:
      return f16_to_f32(reinterpret_cast<const uint16_t*>(data)[index]);
    case DType::kBF16:
      return bf16_to_f32(reinterpret_cast<const uint16_t*>(data)[index]);
    case DType::kF8E4M3:
      return e4m3_to_f32(reinterpret_cast<const uint8_t*>(data)[index]);
    default:
      return reinterpret_cast<const float*>(data)[index];
  }
}

void store_kv_head(const KvView& kv, const SequenceSpan& span, const HeadsView& k, const HeadsView& v, int head) {
  switch (kv.type) {
    case DType::kF16:
      return store<StoreF16>(kv, span, k, v, head);
    case DType::kBF16:
      return store<StoreBF16>(kv, span, k, v, head);
    case DType::kF8E4M3:
      return store<StoreE4m3>(kv, span, k, v, head);
    default:
      return store<StoreF32>(kv, span, k, v, head);
  }
}

}  // namespace coprime
