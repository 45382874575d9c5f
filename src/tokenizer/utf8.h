// Code points of UTF-8 text: where it is broken, reading, writing, and the White_Space property.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace coprime {

enum class Utf8Kind { kWhole, kBroken, kCut };

// What stands at the beginning of non-empty bytes: a whole code point, bytes that cannot become one (the longest such
// prefix of a code point, at least one byte), or all bytes being the beginning of one that more bytes may complete.
struct Utf8Unit {
  Utf8Kind kind;
  size_t length;
};
Utf8Unit first_utf8_unit(std::string_view bytes);

// The position of the first byte that is not part of a whole code point; npos if there is none.
size_t find_invalid_utf8(std::string_view text);

// The code point at `*at` of valid text; moves `*at` past it.
uint32_t next_code_point(std::string_view text, size_t* at);

// The code point that ends at `at` > 0 of valid text, and where it begins.
uint32_t previous_code_point(std::string_view text, size_t at, size_t* begin);

void append_utf8(uint32_t code_point, std::string* text);

bool is_white_space(uint32_t code_point);

}  // namespace coprime
