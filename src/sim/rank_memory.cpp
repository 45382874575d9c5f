#include "sim/rank_memory.h"

#include <cstring>

#include "base/check.h"
#include "base/number_formats.h"

namespace coprime::sim {

void RankMemory::read(const tl::HbmRef& from, std::byte* into) {
  const auto d = static_cast<size_t>(d_);
  uint16_t* const out = reinterpret_cast<uint16_t*>(into);
  if (from.buffer.id == kKeys.id) {  // [d, tokens]: the transposed rows of a tile
    COPRIME_CHECK(from.offset % (tile_ * d_) == 0 && from.rows == d_, "{} {}", from.offset, from.rows);
    row_.resize(d);
    const auto tokens = static_cast<size_t>(from.columns);
    for (size_t t = 0; t < tokens; ++t) {
      inputs_.key(head_, first_token_ + from.offset / d_ + static_cast<int64_t>(t), row_);
      for (size_t i = 0; i < d; ++i) out[i * tokens + t] = row_[i];
    }
    return;
  }
  COPRIME_CHECK(from.offset % d_ == 0 && from.columns == d_, "{} {}", from.offset, from.columns);
  for (int64_t row = 0; row < from.rows; ++row) {
    const std::span<uint16_t> one{out + static_cast<size_t>(row) * d, d};
    if (from.buffer.id == kQueries.id) {
      inputs_.query(head_, from.offset / d_ + row, one);
    } else {
      inputs_.value(head_, first_token_ + from.offset / d_ + row, one);
    }
  }
}

void RankMemory::write(const tl::HbmRef& to, const std::byte* from) {
  const auto begin = static_cast<size_t>(to.offset),
             count = static_cast<size_t>(to.rows) * static_cast<size_t>(to.columns);
  if (output_.size() < begin + count) output_.resize(begin + count);
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, from + i * 2, 2);
    output_[begin + i] = bf16_to_f32(bits);
  }
  ++stores_;
}

}  // namespace coprime::sim
