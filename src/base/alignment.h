// Sizes in whole lines and pages.
#pragma once

#include <cstddef>

namespace coprime {

inline constexpr size_t kCacheLineBytes = 64, kPageBytes = 4096;

constexpr size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace coprime
