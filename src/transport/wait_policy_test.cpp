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

TEST(WaitPolicy, a_wait_without_spins_and_yields_sleeps_after_one_poll) {
  int polls = 0, sleeps = 0;
  wait_until(
      {.spin_us = 0, .yield_us = 0}, [&] { return ++polls > 3; }, [&] { ++sleeps; });
  EXPECT_EQ(polls, 4);
  EXPECT_EQ(sleeps, 3);
}

TEST(WaitPolicy, what_comes_while_it_spins_needs_no_sleep) {
  int polls = 0;
  wait_until(
      {.spin_us = 10'000'000, .yield_us = 0}, [&] { return ++polls > 1000; }, [&] { FAIL(); });
}

TEST(WaitPolicy, spins_and_yields_are_bounded) {
  bool slept = false;
  const int64_t start_us = now_us();
  wait_until(
      {.spin_us = 1000, .yield_us = 1000}, [&] { return slept; }, [&] { slept = true; });
  EXPECT_GE(now_us() - start_us, 1000);
  EXPECT_LT(now_us() - start_us, 5'000'000);
}

// A yield that lets others run ends the yields: here each takes 100 us.
TEST(WaitPolicy, a_shared_core_is_given_up) {
  int polls = 0;
  bool slept = false;
  const auto busy_core = [&] {
    const int64_t start_us = now_us();
    while (polls > 0 && now_us() - start_us < 100) cpu_relax();
    return ++polls > 1'000'000 || slept;
  };
  wait_until({.spin_us = 0, .yield_us = 60'000'000}, busy_core, [&] { slept = true; });
  EXPECT_EQ(polls, 3);  // at once, after the one yield, after the sleep
}

TEST(WaitPolicy, what_is_ready_costs_one_poll) {
  int polls = 0;
  wait_until(
      {.spin_us = 100, .yield_us = 100}, [&] { return ++polls > 0; }, [&] { FAIL(); });
  EXPECT_EQ(polls, 1);
}

TEST(WaitPolicy, this_host_has_a_core) { EXPECT_GE(usable_cores(), 1); }

}  // namespace
}  // namespace coprime
