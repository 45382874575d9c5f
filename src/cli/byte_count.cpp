#include "cli/byte_count.h"

#include <charconv>
#include <utility>

#include "base/error.h"

namespace coprime {
namespace {

// The limits are whole powers.
std::string in_words(int64_t bytes) {
  for (const auto& [unit, shift] : {std::pair('T', 40), {'G', 30}, {'M', 20}, {'K', 10}})
    if (bytes >> shift > 0) return fmt::format("{}{}", bytes >> shift, unit);
  return std::to_string(bytes);
}

}  // namespace

int64_t parse_bytes(const std::string& flag, const std::string& text, int64_t most) {
  int64_t count = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, count);
  std::string unit(end, last);
  if (unit.size() == 3 && unit.ends_with("iB")) unit.resize(1);
  if (unit.size() == 2 && unit.ends_with("B")) unit.resize(1);
  const int shift = unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : unit == "T" ? 40 : 0;
  if (error != std::errc() || !(unit.empty() || shift > 0) || count < 1 || count > most >> shift) {
    fail(ErrorKind::kUsage, "{}: expected bytes up to {}, such as 24G, 512M or 8000000000, found \"{}\"", flag,
         in_words(most), text);
  }
  return count << shift;
}

}  // namespace coprime
