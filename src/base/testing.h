// What the tests of all folders share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace coprime::testing {

// How long soaks run, in percent of their short default: COPRIME_SOAK_PERCENT.
inline int64_t soak_percent() {
  const char* const text = std::getenv("COPRIME_SOAK_PERCENT");
  return text == nullptr ? 100 : std::max<int64_t>(1, std::atoll(text));
}

}  // namespace coprime::testing
