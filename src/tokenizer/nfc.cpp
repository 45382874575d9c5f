#include "tokenizer/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace coprime {
namespace {

// Below U+0300 there is no mark and nothing that decomposes without composing again.
bool surely_normal(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0xcc) return false;  // the first byte of U+0300 and above
  }
  return true;
}

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

int combining_class(int32_t code_point) { return utf8proc_get_property(code_point)->combining_class; }

std::vector<int32_t> decompose(std::string_view text) {
  std::vector<int32_t> points;
  points.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto point = static_cast<int32_t>(next_code_point(text, &at));
    if (point < 0xc0) {
      points.push_back(point);
      continue;
    }
    int32_t parts[32];
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(point, parts, 32, UTF8PROC_DECOMPOSE, &boundary);
    if (count < 0 || count > 32) fail(ErrorKind::kInternal, "utf8proc does not decompose U+{:04X}", point);
    points.insert(points.end(), parts, parts + count);
  }
  return points;
}

// Unicode's canonical ordering: within each run of marks, by class, equal classes in their order.
void order_marks(std::vector<int32_t>* points) {
  for (auto it = points->begin(); it != points->end();) {
    if (*it < 0x300 || combining_class(*it) == 0) {
      ++it;
      continue;
    }
    auto end = it + 1;
    while (end != points->end() && combining_class(*end) != 0) ++end;
    if (end - it > 1) {
      std::stable_sort(it, end, [](int32_t a, int32_t b) { return combining_class(a) < combining_class(b); });
    }
    it = end;
  }
}

}  // namespace

std::string_view to_nfc(std::string_view text, std::string* buffer) {
  if (surely_normal(text)) return text;
  std::vector<int32_t> points = decompose(text);
  order_marks(&points);
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()), options);
  if (count < 0) fail(ErrorKind::kInternal, "utf8proc does not compose: {}", utf8proc_errmsg(count));
  buffer->clear();
  buffer->reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    append_utf8(static_cast<uint32_t>(points[static_cast<size_t>(i)]), buffer);
  }
  return *buffer;
}

std::string_view to_nfc(std::string_view text, std::string* buffer, std::vector<TextRange>* ranges) {
  if (ranges->empty() || surely_normal(text)) return to_nfc(text, buffer);
  // Nothing below U+0300 composes with what stands before it: the text may be cut there, and normalised in parts.
  const auto may_cut = [&](size_t at) { return at == text.size() || static_cast<unsigned char>(text[at]) < 0xcc; };
  std::string whole, part;
  size_t done = 0;
  const auto copy_up_to = [&](size_t end) {
    whole += to_nfc(text.substr(done, end - done), &part);
    done = end;
    return whole.size();
  };
  std::vector<TextRange> moved;
  for (const TextRange& range : *ranges) {
    size_t begin = range.begin, end = range.end;
    while (begin > done && (begin == text.size() || !may_cut(begin) || is_continuation(text[begin]))) --begin;
    while (end < text.size() && (!may_cut(end) || is_continuation(text[end]))) ++end;
    if (end <= done) continue;
    const size_t to = copy_up_to(std::max(begin, done));
    if (!moved.empty() && moved.back().end == to) {
      moved.back().end = copy_up_to(end);
    } else {
      const size_t to_end = copy_up_to(end);
      moved.push_back({to, to_end});
    }
  }
  copy_up_to(text.size());
  *buffer = std::move(whole);
  *ranges = std::move(moved);
  return *buffer;
}

}  // namespace coprime
