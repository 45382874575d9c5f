// A part of a text, in bytes.
#pragma once

#include <cstddef>

namespace coprime {

struct TextRange {
  size_t begin = 0, end = 0;
  bool operator==(const TextRange&) const = default;
};

}  // namespace coprime
