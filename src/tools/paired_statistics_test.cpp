// Against exact fractions, computed in Python.
#include "tools/paired_statistics.h"

#include <gtest/gtest.h>

namespace coprime {
namespace {

struct Case {
  int64_t b, c, questions;
  double p_value, difference, standard_error;
};

TEST(PairedStatistics, are_those_of_exact_fractions) {
  const Case kCases[] = {
      {8, 10, 500, 0.8145294189453125, 0.004, 0.008483395546595714},
      {3, 10, 500, 0.09228515625, 0.014, 0.007183870822892071},
      {2, 10, 500, 0.03857421875, 0.016, 0.00689115374955457},
      {0, 6, 500, 0.03125, 0.012, 0.004869496893930624},
      {0, 0, 500, 1.0, 0.0, 0.0},
      {1, 0, 10, 1.0, -0.1, 0.09486832980505137},
      {40, 25, 500, 0.08168153394154005, -0.03, 0.016068602926203636},
      {700, 650, 5000, 0.18231034946700564, -0.01, 0.007347108274688756},
      {5, 5, 100, 1.0, 0.0, 0.0316227766016838},
  };
  for (const Case& row : kCases) {
    const PairedStatistics got{row.questions, row.b, row.c};
    EXPECT_NEAR(got.p_value(), row.p_value, 1e-11 * row.p_value) << row.b << " " << row.c;
    EXPECT_NEAR(got.difference(), row.difference, 1e-15);
    EXPECT_NEAR(got.standard_error(), row.standard_error, 1e-15);
    if (row.b == 0 || row.c == 0) continue;
    EXPECT_NEAR(got.upper() - got.lower(), 2 * 1.959963984540054 * row.standard_error, 1e-14);
  }
}

// Bounds of binomial proportions where a count is 0, by bisection over exact fractions.
TEST(PairedStatistics, no_pair_of_a_kind_is_no_proof_that_there_is_none) {
  const PairedStatistics one{1, 0, 0};
  EXPECT_NEAR(one.lower(), -0.95, 1e-12);
  EXPECT_NEAR(one.upper(), 0.95, 1e-12);
  EXPECT_FALSE(one.non_inferior());
  EXPECT_NEAR((PairedStatistics{20, 0, 0}).lower(), -0.1391083406683, 1e-10);
  EXPECT_FALSE((PairedStatistics{148, 0, 0}).non_inferior());
  EXPECT_TRUE((PairedStatistics{149, 0, 0}).non_inferior());
  EXPECT_NEAR((PairedStatistics{500, 1, 0}).lower(), -0.009452282208085805, 1e-10);
  EXPECT_NEAR((PairedStatistics{500, 1, 0}).upper(), 0.005870970189411295, 1e-10);
  EXPECT_NEAR((PairedStatistics{500, 0, 6}).lower(), -0.0007349874589817063, 1e-10);
  EXPECT_FALSE((PairedStatistics{150, 1, 0}).non_inferior());  // Wald's would be
  EXPECT_EQ((PairedStatistics{5, 5, 0}).lower(), -1);
  EXPECT_EQ((PairedStatistics{}).lower(), -1);
}

TEST(PairedStatistics, how_many_questions_would_exclude_the_loss) {
  EXPECT_EQ((PairedStatistics{1, 0, 0}).questions_needed(), 149);
  EXPECT_EQ((PairedStatistics{50, 1, 1}).questions_needed(), 385);  // (1.96 / 0.02)^2 * 2 / 50
  EXPECT_FALSE((PairedStatistics{10, 1, 0}).questions_needed());    // it is worse so far
  EXPECT_FALSE((PairedStatistics{}).questions_needed());
}

TEST(PairedStatistics, a_loss_of_two_points_is_excluded_or_not) {
  EXPECT_TRUE((PairedStatistics{500, 8, 10}).non_inferior());
  EXPECT_TRUE((PairedStatistics{500, 0, 0}).non_inferior());
  EXPECT_FALSE((PairedStatistics{500, 20, 8}).non_inferior());
  EXPECT_FALSE((PairedStatistics{50, 1, 1}).non_inferior());  // too few questions to tell
  EXPECT_TRUE((PairedStatistics{50, 1, 1}).non_inferior(10));
  EXPECT_FALSE((PairedStatistics{0, 0, 0}).non_inferior());
}

}  // namespace
}  // namespace coprime
