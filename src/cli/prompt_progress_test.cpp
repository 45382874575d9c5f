#include "cli/prompt_progress.h"

#include <gtest/gtest.h>

#include <vector>

namespace coprime {
namespace {

constexpr int64_t kSecond = 1'000'000;

TEST(PromptProgress, is_told_after_a_second_and_taken_away_before_the_text) {
  std::vector<std::string> written;
  PromptProgress progress([&](const std::string& text) { written.push_back(text); }, 5 * kSecond);
  progress.read(256, 4096, 5 * kSecond + kSecond / 2);
  EXPECT_TRUE(written.empty());
  progress.read(1024, 4096, 7 * kSecond);
  progress.read(1280, 4096, 7 * kSecond + kSecond / 10);  // too soon after the last
  ASSERT_EQ(written.size(), 1u);
  EXPECT_EQ(written[0], "\r\033[Kreading the prompt: 1024 of 4096 tokens, 6 s left");
  progress.read(4096, 4096, 9 * kSecond);
  ASSERT_EQ(written.size(), 2u);
  EXPECT_EQ(written[1], "\r\033[K");
}

TEST(PromptProgress, says_nothing_of_a_short_prompt_or_without_a_terminal) {
  std::vector<std::string> written;
  PromptProgress quick([&](const std::string& text) { written.push_back(text); }, 0);
  quick.read(256, 512, kSecond / 2);
  quick.read(512, 512, 2 * kSecond);
  EXPECT_TRUE(written.empty());
  PromptProgress(nullptr, 0).read(256, 512, 100 * kSecond);
}

}  // namespace
}  // namespace coprime
