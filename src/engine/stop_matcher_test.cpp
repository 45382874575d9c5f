#include "engine/stop_matcher.h"

#include <gtest/gtest.h>

namespace coprime {
namespace {

TEST(StopMatcher, ends_before_a_stop_string_that_lies_across_pieces) {
  StopMatcher matcher({"END"});
  std::string text;
  for (const char* piece : {"the E", "N", "E", "ND", " more"}) text += matcher.push(piece);
  EXPECT_EQ(text, "the EN");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, withholds_no_more_than_could_become_a_stop_string) {
  StopMatcher matcher({"\n\n", "stop"});
  EXPECT_EQ(matcher.push("abc\n"), "abc");
  EXPECT_EQ(matcher.push("d st"), "\nd ");
  EXPECT_EQ(matcher.push("art"), "start");
  EXPECT_EQ(matcher.push("sto"), "");
  EXPECT_EQ(matcher.finish(), "sto");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, the_first_of_several_wins) {
  StopMatcher matcher({"bc", "abcd"});
  EXPECT_EQ(matcher.push("xab"), "x");
  EXPECT_EQ(matcher.push("cd"), "a");
  EXPECT_TRUE(matcher.stopped());
}

TEST(StopMatcher, a_stop_string_that_repeats_itself_is_found_at_its_first_place) {
  StopMatcher matcher({"aab"});
  std::string text;
  for (char c : std::string("aaaabx")) text += matcher.push(std::string(1, c));
  EXPECT_EQ(text, "aa");
}

TEST(StopMatcher, without_stop_strings_everything_passes) {
  StopMatcher matcher({""});
  EXPECT_EQ(matcher.push("text"), "text");
}

}  // namespace
}  // namespace coprime
