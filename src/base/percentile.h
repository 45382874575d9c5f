// Percentiles of a sample, by the nearest rank.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace coprime {

// The smallest of the values that has at least the share (0 to 1) of them at or below it; 0 of none.
template <class T>
T percentile(std::vector<T> values, double share) {
  if (values.empty()) return T{};
  const auto count = static_cast<double>(values.size());
  const auto rank = static_cast<size_t>(std::clamp(std::ceil(share * count - 1e-9), 1.0, count));  // from 1
  std::ranges::nth_element(values, values.begin() + static_cast<ptrdiff_t>(rank) - 1);
  return values[rank - 1];
}

}  // namespace coprime
