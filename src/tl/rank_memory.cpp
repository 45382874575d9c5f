#include "tl/rank_memory.h"

#include <cstring>

#include "base/check.h"
#include "tl/math.h"

namespace coprime::tl {

void RankMemory::read(const HbmRef& from, std::byte* into) {
  if (from.buffer.id >= kFirstPlainBuffer) {
    const std::vector<std::byte>& memory = plain_.at(from.buffer.id - kFirstPlainBuffer);
    const auto offset = static_cast<size_t>(from.offset * bytes_of(from.buffer.type));
    COPRIME_CHECK(offset + static_cast<size_t>(from.bytes()) <= memory.size(), "{} {}", offset, memory.size());
    std::memcpy(into, memory.data() + offset, static_cast<size_t>(from.bytes()));
    return;
  }
  const MemoryLayout& layout = turns_.at(from.buffer.id / kContents);
  const auto content = static_cast<Content>(from.buffer.id % kContents);
  const auto d = static_cast<size_t>(layout.d);
  uint16_t* const out = reinterpret_cast<uint16_t*>(into);
  if (content == Content::kKeys) {  // [tiles * d, tokens]: of each tile the transposed rows
    COPRIME_CHECK(from.offset % (layout.tile * layout.d) == 0 && from.rows % layout.d == 0, "{} {}", from.offset,
                  from.rows);
    row_.resize(d);
    const auto tokens = static_cast<size_t>(from.columns), tiles = static_cast<size_t>(from.rows) / d;
    for (size_t t = 0; t < tiles * tokens; ++t) {
      inputs_.key(layout.head, layout.first_token + from.offset / layout.d + static_cast<int64_t>(t), row_);
      for (size_t i = 0; i < d; ++i) out[(t / tokens * d + i) * tokens + t % tokens] = row_[i];
    }
    return;
  }
  COPRIME_CHECK(from.offset % layout.d == 0 && from.columns == layout.d, "{} {}", from.offset, from.columns);
  const int64_t first = from.offset / layout.d;
  for (int64_t row = 0; row < from.rows; ++row) {
    const std::span<uint16_t> one{out + static_cast<size_t>(row) * d, d};
    if (content == Content::kValues) {
      inputs_.value(layout.head, layout.first_token + first + row, one);
      continue;
    }
    const int64_t width = from.rows / layout.heads;
    const int64_t position = layout.first_query + first / layout.heads + row % width;
    inputs_.query(layout.head, position * layout.group + layout.first_query_head + row / width, one);
  }
}

void RankMemory::write(const HbmRef& to, const std::byte* from) {
  if (to.buffer.id >= kFirstPlainBuffer) {
    const size_t number = to.buffer.id - kFirstPlainBuffer;
    if (plain_.size() <= number) plain_.resize(number + 1);
    const auto offset = static_cast<size_t>(to.offset * bytes_of(to.buffer.type));
    const auto bytes = static_cast<size_t>(to.bytes());
    if (plain_[number].size() < offset + bytes) plain_[number].resize(offset + bytes);
    std::memcpy(plain_[number].data() + offset, from, bytes);
    return;
  }
  const MemoryLayout& layout = turns_.at(to.buffer.id / kContents);
  Store& store = stores_.emplace_back(Store{&layout, to.offset / layout.d, to.rows, {}});
  store.values.resize(static_cast<size_t>(to.rows) * static_cast<size_t>(to.columns));
  widen({const_cast<std::byte*>(from), to.rows, to.columns, to.buffer.type}, store.values.data());
}

}  // namespace coprime::tl
