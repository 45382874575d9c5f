#include "tokenizer/byte_alphabet.h"

#include "tokenizer/utf8.h"

namespace coprime {

// Printable Latin-1 stands for itself; the other bytes, in order, are U+0100, U+0101, ... : 0..32, 127..160 and 173.
int byte_of_letter(uint32_t code_point) {
  if ((code_point >= 33 && code_point <= 126) || (code_point >= 161 && code_point <= 255 && code_point != 173)) {
    return static_cast<int>(code_point);
  }
  if (code_point < 256 || code_point > 323) return -1;
  const auto index = static_cast<int>(code_point) - 256;
  if (index < 33) return index;
  if (index < 67) return index - 33 + 127;
  return 173;
}

std::optional<std::string> bytes_of_token(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (size_t at = 0; at < token.size();) {
    const int byte = byte_of_letter(next_code_point(token, &at));
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

}  // namespace coprime
