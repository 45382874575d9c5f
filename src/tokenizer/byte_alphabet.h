// GPT-2's alphabet: each of the 256 bytes has a printable code point that stands for it in a byte-level vocabulary.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace coprime {

// The byte that a code point stands for; -1 if it stands for none.
int byte_of_letter(uint32_t code_point);

// The bytes that a token of a vocabulary stands for; nothing if a code point of it is outside the alphabet. `token` is
// valid UTF-8.
std::optional<std::string> bytes_of_token(std::string_view token);

}  // namespace coprime
