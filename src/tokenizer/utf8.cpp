#include "tokenizer/utf8.h"

#include <cstring>

#include "tokenizer/tokenizer.h"

namespace coprime {
namespace {

// Unicode 14, table 3-7: the length that a first byte announces (0: none), and the range of the second byte.
struct Lead {
  size_t length;
  unsigned char low, high;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xc2) return {0, 0, 0};
  if (byte < 0xe0) return {2, 0x80, 0xbf};
  if (byte == 0xe0) return {3, 0xa0, 0xbf};
  if (byte == 0xed) return {3, 0x80, 0x9f};
  if (byte < 0xf0) return {3, 0x80, 0xbf};
  if (byte == 0xf0) return {4, 0x90, 0xbf};
  if (byte < 0xf4) return {4, 0x80, 0xbf};
  if (byte == 0xf4) return {4, 0x80, 0x8f};
  return {0, 0, 0};
}

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

}  // namespace

Utf8Unit first_utf8_unit(std::string_view bytes) {
  const Lead lead = lead_of(static_cast<unsigned char>(bytes[0]));
  if (lead.length == 0) return {Utf8Kind::kBroken, 1};
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == bytes.size()) return {Utf8Kind::kCut, i};
    const auto byte = static_cast<unsigned char>(bytes[i]);
    const bool fits = i == 1 ? byte >= lead.low && byte <= lead.high : (byte & 0xc0) == 0x80;
    if (!fits) return {Utf8Kind::kBroken, i};
  }
  return {Utf8Kind::kWhole, lead.length};
}

size_t find_invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (at + 8 <= text.size()) {
      uint64_t eight;
      std::memcpy(&eight, text.data() + at, 8);
      if ((eight & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    const Utf8Unit unit = first_utf8_unit(text.substr(at, 4));
    if (unit.kind != Utf8Kind::kWhole) return at;
    at += unit.length;
  }
  return std::string_view::npos;
}

uint32_t next_code_point(std::string_view text, size_t* at) {
  const auto byte = [&](size_t i) { return uint32_t{static_cast<unsigned char>(text[*at + i])}; };
  const uint32_t first = byte(0);
  uint32_t result = first;
  size_t length = 1;
  if (first >= 0xf0) {
    result = (first & 7) << 18 | (byte(1) & 63) << 12 | (byte(2) & 63) << 6 | (byte(3) & 63);
    length = 4;
  } else if (first >= 0xe0) {
    result = (first & 15) << 12 | (byte(1) & 63) << 6 | (byte(2) & 63);
    length = 3;
  } else if (first >= 0xc0) {
    result = (first & 31) << 6 | (byte(1) & 63);
    length = 2;
  }
  *at += length;
  return result;
}

uint32_t previous_code_point(std::string_view text, size_t at, size_t* begin) {
  size_t start = at - 1;
  while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
  *begin = start;
  return next_code_point(text, &start);
}

void append_utf8(uint32_t code_point, std::string* text) {
  const auto put = [&](uint32_t byte) { text->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xc0 | code_point >> 6);
    put(0x80 | (code_point & 63));
  } else if (code_point < 0x10000) {
    put(0xe0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 63));
    put(0x80 | (code_point & 63));
  } else {
    put(0xf0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 63));
    put(0x80 | (code_point >> 6 & 63));
    put(0x80 | (code_point & 63));
  }
}

bool is_white_space(uint32_t code_point) {
  if (code_point <= 0x20) return code_point == 0x20 || (code_point >= 9 && code_point <= 13);
  return code_point == 0x85 || code_point == 0xa0 || code_point == 0x1680 ||
         (code_point >= 0x2000 && code_point <= 0x200a) || code_point == 0x2028 || code_point == 0x2029 ||
         code_point == 0x202f || code_point == 0x205f || code_point == 0x3000;
}

std::string Utf8Stream::push(std::string_view bytes) {
  pending_ += bytes;
  std::string out;
  const std::string_view view = pending_;
  size_t at = 0;
  while (at < view.size()) {
    const Utf8Unit unit = first_utf8_unit(view.substr(at, 4));
    if (unit.kind == Utf8Kind::kCut) break;
    out += unit.kind == Utf8Kind::kWhole ? view.substr(at, unit.length) : kReplacement;
    at += unit.length;
  }
  pending_.erase(0, at);
  return out;
}

std::string Utf8Stream::finish() {
  if (pending_.empty()) return {};
  pending_.clear();
  return std::string(kReplacement);
}

}  // namespace coprime
