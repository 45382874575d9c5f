// 64-bit hashes (XXH3) of bytes, for comparing states between ranks; not for keys or secrets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace coprime {

uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t seed = 0);

}  // namespace coprime
