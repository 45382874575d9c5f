// A number of bytes as a person writes it.
#pragma once

#include <cstdint>
#include <string>

namespace coprime {

// "24G", "24GB" and "24GiB" (K, M, G, T of 1024 each), or bytes: 1 to `most`. Error(kUsage) naming `flag`.
int64_t parse_bytes(const std::string& flag, const std::string& text, int64_t most);

}  // namespace coprime
