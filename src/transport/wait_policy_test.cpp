#include "transport/wait_policy.h"

#include <gtest/gtest.h>

namespace coprime {
namespace {

TEST(WaitPolicy, ranks_with_a_core_for_every_thread_spin) {
  EXPECT_GT(choose_wait_policy(2, 2, 1).spin_us, 0);
  EXPECT_GT(choose_wait_policy(16, 4, 4).spin_us, 0);
}

TEST(WaitPolicy, ranks_that_share_cores_do_not) {
  EXPECT_EQ(choose_wait_policy(2, 3, 1).spin_us, 0);
  EXPECT_EQ(choose_wait_policy(2, 2, 2).spin_us, 0);
  EXPECT_EQ(choose_wait_policy(1, 16, 8).spin_us, 0);
}

TEST(WaitPolicy, a_wait_polls_spins_yields_and_then_sleeps) {
  int polls = 0, sleeps = 0;
  wait_until(
      {.spin_us = 0, .yields = 5}, [&] { return ++polls > 8; }, [&] { ++sleeps; });
  EXPECT_EQ(polls, 9);
  EXPECT_EQ(sleeps, 3);  // after one poll at once and five after yields
  polls = sleeps = 0;
  wait_until(
      {.spin_us = 1'000'000, .yields = 0}, [&] { return ++polls > 1000; }, [&] { ++sleeps; });
  EXPECT_EQ(sleeps, 0);
}

TEST(WaitPolicy, what_is_ready_costs_one_poll) {
  int polls = 0;
  wait_until(
      {.spin_us = 100, .yields = 5}, [&] { return ++polls > 0; }, [&] { FAIL(); });
  EXPECT_EQ(polls, 1);
}

TEST(WaitPolicy, this_host_has_a_core) { EXPECT_GE(usable_cores(), 1); }

}  // namespace
}  // namespace coprime
