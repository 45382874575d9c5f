#include "template/text.h"

#include <algorithm>

namespace coprime::templates {

Text Text::foreign(std::string bytes) {
  Text text(std::move(bytes));
  text.mark(0, text.size());
  return text;
}

void Text::mark(size_t begin, size_t end) {
  if (begin == end) return;
  if (!ranges_.empty() && ranges_.back().end == begin) {
    ranges_.back().end = end;
  } else {
    ranges_.push_back({begin, end});
  }
}

void Text::append(const Text& other, size_t begin, size_t end) {
  const size_t at = size();
  // The first range that ends behind `begin`.
  auto range = std::ranges::upper_bound(other.ranges_, begin, {}, &TextRange::end);
  const auto count = static_cast<size_t>(other.ranges_.end() - range);
  for (size_t i = 0, first = other.ranges_.size() - count; i < count; ++i) {
    const TextRange from = other.ranges_[first + i];  // by value: `other` may be this text
    if (from.begin >= end) break;
    mark(at + std::max(from.begin, begin) - begin, at + std::min(from.end, end) - begin);
  }
  bytes_.append(other.bytes_, begin, end - begin);
}

void Text::append_bytes(std::string_view bytes, bool foreign) {
  if (foreign) mark(size(), size() + bytes.size());
  bytes_ += bytes;
}

bool Text::is_foreign(size_t at) const {
  const auto range = std::ranges::upper_bound(ranges_, at, {}, &TextRange::end);
  return range != ranges_.end() && range->begin <= at;
}

Text Text::slice(size_t begin, size_t end) const {
  Text result;
  result.append(*this, begin, end);
  return result;
}

}  // namespace coprime::templates
