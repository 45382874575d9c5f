#include "device/kv_pages.h"

#include <algorithm>

#include "base/number_formats.h"

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

template <class Store>
void store(const KvView& kv, const SequenceSpan& span, const HeadsView& k, const HeadsView& v) {
  using Element = typename Store::Element;
  for (int64_t done = 0; done < span.num_rows;) {  // the rows that share a page, at a time
    const int64_t position = span.start + done, slot = position % kPageTokens, row = span.first_row + done;
    const int64_t count = std::min(span.num_rows - done, kPageTokens - slot);
    const int32_t page = span.pages[static_cast<size_t>(position / kPageTokens)];
    for (int h = 0; h < kv.kv_heads; ++h) {
      auto* keys = reinterpret_cast<Element*>(kv.keys(page, h)) + slot;
      for (int64_t d = 0; d < kv.head_dim; ++d) {
        for (int64_t t = 0; t < count; ++t) keys[d * kPageTokens + t] = Store::round(k.head(row + t, h)[d]);
      }
      auto* values = reinterpret_cast<Element*>(kv.values(page, h)) + slot * kv.head_dim;
      for (int64_t t = 0; t < count; ++t) {
        const float* in = v.head(row + t, h);
        for (int64_t d = 0; d < kv.head_dim; ++d) values[t * kv.head_dim + d] = Store::round(in[d]);
      }
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
    default:
      return reinterpret_cast<const float*>(data)[index];
  }
}

void store_kv_rows(const KvView& kv, std::span<const SequenceSpan> spans, const HeadsView& k, const HeadsView& v) {
  for (const SequenceSpan& span : spans) {
    switch (kv.type) {
      case DType::kF16:
        store<StoreF16>(kv, span, k, v);
        break;
      case DType::kBF16:
        store<StoreBF16>(kv, span, k, v);
        break;
      default:
        store<StoreF32>(kv, span, k, v);
        break;
    }
  }
}

}  // namespace coprime
