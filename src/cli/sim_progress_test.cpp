#include "cli/sim_progress.h"

#include <gtest/gtest.h>

namespace coprime {
namespace {

TEST(SimProgress, shows_a_line_after_two_seconds_and_takes_it_away) {
  std::string shown;
  {
    SimProgress progress([&](const std::string& text) { shown += text; }, 5'000'000);
    progress.within_runs(2, 20, 6'999'999);
    EXPECT_EQ(shown, "");
    progress.within_runs(2, 20, 7'000'000);
    EXPECT_NE(shown.find("run 3 of 20, 2 s"), std::string::npos);
    progress.within_run(12.34, 5'600'000, 9'000'000);
    EXPECT_NE(shown.find("12.3 us simulated, 5.6 M events, 4 s"), std::string::npos);
    shown.clear();
  }
  EXPECT_EQ(shown, "\r\033[K");
}

}  // namespace
}  // namespace coprime
