#include "engine/facts.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/ssh_launcher.h"

namespace coprime {
namespace {

std::string mismatch(const Facts& one, const Facts& other) {
  try {
    compare_facts("rank 0", one, "rank 2", other);
    return "none";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kModel);
    return error.what();
  }
}

TEST(Facts, the_first_difference_is_named_with_both_values_and_what_to_do) {
  const Facts facts{{"program version", "0.1.0", "run the same coprime on all hosts"}, {"settings", "kv F32", "?"}};
  Facts other = facts;
  EXPECT_EQ(mismatch(facts, other), "none");
  other[1].value = "kv F16";
  EXPECT_EQ(mismatch(facts, other), "rank 0 and rank 2 differ in the settings: kv F32 against kv F16: ?");
  other[0].value = "0.2.0";
  EXPECT_EQ(mismatch(facts, other),
            "rank 0 and rank 2 differ in the program version: 0.1.0 against 0.2.0: run the same coprime on all hosts");
}

TEST(Facts, holders_with_other_facts_are_of_other_programs) {
  const Facts facts{{"program version", "0.1.0", ""}};
  EXPECT_NE(mismatch(facts, {}).find("run the same coprime"), std::string::npos);
  EXPECT_NE(mismatch(facts, {{"version", "0.1.0", ""}}).find("run the same coprime"), std::string::npos);
}

TEST(RemoteCommand, no_shell_takes_its_words_apart) {
  const HostLine host{.host = "a", .model = "/models/it's $HOME", .program = "/opt/co prime"};
  EXPECT_EQ(remote_command(host, {.endpoint = {"front", 7000}}),
            "exec '/opt/co prime' rank --join 'front:7000' --key-file - --once --model '/models/it'\\''s $HOME'");
}

}  // namespace
}  // namespace coprime
