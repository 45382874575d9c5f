#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.h"

namespace coprime {
namespace {

std::vector<Candidate> four() {
  return {{std::log(0.1f), 7}, {std::log(0.4f), 3}, {std::log(0.3f), 9}, {std::log(0.2f), 1}};
}

std::map<int32_t, double> shares(const SamplingOptions& options, int draws = 40000) {
  std::map<int32_t, double> counts;
  for (int i = 0; i < draws; ++i) {
    auto candidates = four();
    counts[sample(candidates, options, static_cast<uint64_t>(i))] += 1.0 / draws;
  }
  return counts;
}

TEST(Sampler, greedy_takes_the_largest_and_the_lowest_id_of_equals) {
  std::vector<Candidate> equals{{1, 9}, {2, 8}, {2, 4}, {1, 1}};
  EXPECT_EQ(sample(equals, {}, 0), 4);
}

TEST(Sampler, a_logit_that_is_no_number_is_an_error_and_never_drawn) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    const std::vector<Candidate> candidates = {{1, 0}, {bad, 1}};
    try {
      check_logits(candidates, 7);
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kModel);
      EXPECT_NE(std::string(error.what()).find("the logit of token 1 at position 7 is"), std::string::npos);
    }
  }
}

TEST(Sampler, draws_follow_the_distribution) {
  auto counts = shares({.temperature = 1, .seed = 11});
  EXPECT_NEAR(counts[7], 0.1, 0.01);
  EXPECT_NEAR(counts[3], 0.4, 0.01);
  EXPECT_NEAR(counts[9], 0.3, 0.01);
  EXPECT_NEAR(counts[1], 0.2, 0.01);
}

TEST(Sampler, temperature_sharpens) {
  auto counts = shares({.temperature = 0.5, .seed = 11});
  const double total = 0.01 + 0.16 + 0.09 + 0.04;
  EXPECT_NEAR(counts[3], 0.16 / total, 0.01);
}

TEST(Sampler, top_k_top_p_and_min_p_each_cut_the_tail) {
  EXPECT_EQ(shares({.temperature = 1, .top_k = 2}).size(), 2u);
  EXPECT_EQ(shares({.temperature = 1, .top_p = 0.65}).size(), 2u);
  EXPECT_EQ(shares({.temperature = 1, .top_p = 0.75}).size(), 3u);
  EXPECT_EQ(shares({.temperature = 1, .top_p = 0}).size(), 1u);
  EXPECT_EQ(shares({.temperature = 1, .min_p = 0.6}).size(), 2u);
  EXPECT_EQ(shares({.temperature = 1, .min_p = 0.2}).size(), 4u);
}

TEST(Sampler, a_draw_depends_on_seed_and_position_only) {
  const SamplingOptions options{.temperature = 1, .seed = 5};
  auto a = four(), b = four();
  std::ranges::reverse(b);
  for (uint64_t position = 0; position < 200; ++position)
    EXPECT_EQ(sample(a, options, position), sample(b, options, position));
  EXPECT_NE(shares({.temperature = 1, .seed = 1}, 500), shares({.temperature = 1, .seed = 2}, 500));
}

TEST(Sampler, ranks_give_only_what_a_draw_can_use) {
  EXPECT_EQ(candidates_needed({.temperature = 0, .top_k = 20}), 1);
  EXPECT_EQ(candidates_needed({.temperature = 1, .top_k = 20}), 20);
  EXPECT_EQ(candidates_needed({.temperature = 1}), 0);
}

}  // namespace
}  // namespace coprime
