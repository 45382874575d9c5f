#include <gtest/gtest.h>

#include "sim/run.h"

namespace coprime::sim {
namespace {

RunSpec small() {
  RunSpec spec;
  spec.context = 64 * 64 * 8;
  return spec;
}

TEST(Decode, CountsRoundsAndSends) {
  const RunResult result = run(ahbm_chip(), small());
  EXPECT_EQ(result.rounds, 6);
  EXPECT_EQ(result.sends, 189);
  EXPECT_EQ(result.sends_total, 1512);
}

}  // namespace
}  // namespace coprime::sim
