// How `coprime link` names sizes, and which of the measured ones its matrices show.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

namespace coprime {

// "16 KiB", "1 MiB", "1000 B".
inline std::string bytes_text(int64_t bytes) {
  constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB;
  if (bytes >= kMiB && bytes % kMiB == 0) return fmt::format("{} MiB", bytes / kMiB);
  if (bytes >= kKiB && bytes % kKiB == 0) return fmt::format("{} KiB", bytes / kKiB);
  return fmt::format("{} B", bytes);
}

// The size that stands for a decode gate: the nearest to 16 KiB.
inline int64_t latency_size(std::span<const int64_t> sizes) {
  const auto distance = [](int64_t bytes) { return std::abs(bytes - 16384); };
  return *std::ranges::min_element(sizes, {}, distance);
}
inline int64_t bandwidth_size(std::span<const int64_t> sizes) { return std::ranges::max(sizes); }

}  // namespace coprime
