#include "plan/other_engines.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "plan/test_models.h"

namespace coprime {
namespace {

std::map<int, std::string> parse_refusals(std::string_view text) {
  std::map<int, std::string> refusals;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) refusals[word[0] - '0'] = word.substr(1);
  return refusals;
}

TEST(OtherEngines, refuse_the_rank_counts_that_are_known_of_each_model_and_for_the_known_reasons) {
  for (const KnownModel& known : kKnownModels) {
    const std::map<int, std::string> expected = parse_refusals(known.refused);
    for (int ranks = 2; ranks <= 8; ++ranks) {
      const Refusals refusals = equal_division_refusals(numbers_of(known), ranks);
      const auto entry = expected.find(ranks);
      ASSERT_EQ(refusals.any(), entry != expected.end()) << known.name << " on " << ranks << ": " << refusals.letters();
      if (entry == expected.end()) continue;
      if (entry->second.empty()) {
        EXPECT_GE(refusals.letters().size(), 2u) << known.name << " on " << ranks;
      } else {
        EXPECT_EQ(refusals.letters(), entry->second) << known.name << " on " << ranks;
      }
    }
  }
}

TEST(OtherEngines, that_copy_no_kv_heads_refuse_the_counts_that_are_known_of_each_model) {
  for (const KnownModel& known : kKnownModels) {
    std::string refused;
    for (int ranks = 2; ranks <= 8; ++ranks) {
      if (strict_division_refuses(numbers_of(known), ranks)) refused += static_cast<char>('0' + ranks);
    }
    EXPECT_EQ(refused, known.strictly_refused) << known.name;
  }
}

TEST(OtherEngines, give_the_numbers_that_do_not_divide_as_reasons) {
  const ModelNumbers qwen = numbers_of(named_shape("qwen3.8-27b"));
  EXPECT_EQ(refusal_reasons(qwen, 3),
            (std::vector<std::string>{"4 KV heads", "an MLP width of 17408", "a vocabulary of 248320"}));
  EXPECT_TRUE(refusal_reasons(qwen, 2).empty());
}

}  // namespace
}  // namespace coprime
