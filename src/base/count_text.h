// A count as a person writes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace coprime {

// "64", "256K", "1M" (2^10, 2^20): from 1 to `most`. Nothing for any other text.
std::optional<int64_t> parse_count(std::string_view text, int64_t most);

}  // namespace coprime
