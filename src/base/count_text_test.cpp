#include "base/count_text.h"

#include <gtest/gtest.h>

namespace coprime {
namespace {

TEST(ParseCount, takes_whole_numbers_with_k_and_m_up_to_the_most) {
  EXPECT_EQ(parse_count("64", 100), 64);
  EXPECT_EQ(parse_count("2K", 2048), 2048);
  EXPECT_EQ(parse_count("1M", INT64_MAX), 1 << 20);
  for (const char* text : {"", "K", "0", "-1", "1.5K", "2k", "2KB", "2 K", "101", "1K", "9223372036854775807K"})
    EXPECT_EQ(parse_count(text, 100), std::nullopt) << text;
  EXPECT_EQ(parse_count("9223372036854775807K", INT64_MAX), std::nullopt);
}

}  // namespace
}  // namespace coprime
