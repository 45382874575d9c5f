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
    EXPECT_NEAR(got.upper() - got.lower(), 2 * 1.959963984540054 * row.standard_error, 1e-14);
  }
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
