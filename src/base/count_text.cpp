#include "base/count_text.h"

#include <charconv>

namespace coprime {

std::optional<int64_t> parse_count(std::string_view text, int64_t most) {
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  const int shift = unit == "K" ? 10 : unit == "M" ? 20 : 0;
  if (error != std::errc() || !(unit.empty() || shift > 0) || count < 1 || count > most >> shift) return {};
  return count << shift;
}

}  // namespace coprime
