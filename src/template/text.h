// A string of a template that knows where its parts come from: those of the caller's data (messages, tools, options)
// are ranges, the rest is the template's own. Every operation keeps them, so that what a user wrote is known to the
// end. Invariant: ranges are ascending, disjoint, not empty, and do not touch; the bytes are UTF-8, and no range cuts a
// code point.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/text_range.h"

namespace coprime::templates {

class Text {
 public:
  Text() = default;
  static Text own(std::string bytes) { return Text(std::move(bytes)); }
  static Text foreign(std::string bytes);

  const std::string& bytes() const { return bytes_; }
  std::string_view view() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  const std::vector<TextRange>& foreign_ranges() const { return ranges_; }
  bool has_foreign() const { return !ranges_.empty(); }

  void append(const Text& other) { append(other, 0, other.size()); }
  void append(const Text& other, size_t begin, size_t end);
  void append_own(std::string_view bytes) { bytes_ += bytes; }
  // Foreign where `foreign` says so.
  void append_bytes(std::string_view bytes, bool foreign);
  bool is_foreign(size_t at) const;  // the byte at `at`

  Text slice(size_t begin, size_t end) const;

 private:
  explicit Text(std::string bytes) : bytes_(std::move(bytes)) {}
  void mark(size_t begin, size_t end);  // at or behind the last range's end

  std::string bytes_;
  std::vector<TextRange> ranges_;
};

}  // namespace coprime::templates
