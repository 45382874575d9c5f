#include "cli/byte_count.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace coprime {
namespace {

constexpr int64_t kMost = int64_t{1} << 40;

TEST(ByteCount, is_a_number_with_a_unit_of_1024_or_none) {
  EXPECT_EQ(parse_bytes("--memory", "5120", kMost), 5120);
  EXPECT_EQ(parse_bytes("--memory", "16K", kMost), 16 << 10);
  EXPECT_EQ(parse_bytes("--memory", "16KB", kMost), 16 << 10);
  EXPECT_EQ(parse_bytes("--memory", "3MiB", kMost), 3 << 20);
  EXPECT_EQ(parse_bytes("--memory", "24G", kMost), int64_t{24} << 30);
  EXPECT_EQ(parse_bytes("--memory", "1T", kMost), kMost);
}

TEST(ByteCount, of_anything_else_is_refused_with_the_flag_and_the_limit) {
  for (const char* text : {"", "0", "-1K", "1.5G", "16k", "16Ki", "B", "K", "2T", "1025G", "99999999999999999999"}) {
    try {
      parse_bytes("--memory", text, kMost);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      const std::string what = error.what();
      EXPECT_NE(what.find("--memory: expected bytes up to 1T"), std::string::npos) << what;
      EXPECT_NE(what.find(fmt::format("\"{}\"", text)), std::string::npos) << what;
    }
  }
}

}  // namespace
}  // namespace coprime
