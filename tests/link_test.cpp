// Worlds whose links are measured, with ranks as processes that die or stand still in a trial.
#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

#include "base/clock.h"
#include "program.h"
#include "tools/link.h"

namespace coprime {
namespace {

constexpr int kTimeoutMs = 500;

RankedLinkWorld world_of_processes(int ranks, Link wish) {
  return RankedLinkWorld(
      {.ranks = ranks, .wish = wish, .timeout_ms = kTimeoutMs, .launch = {.program = COPRIME_PROGRAM}});
}

// A trial of many seconds; rank 1 gets the signal in the middle of it.
std::vector<TrialReport> run_and_signal(RankedLinkWorld& world, LinkTrial::Kind kind, std::vector<int> members,
                                        int signal) {
  std::thread hand([&] {
    ::usleep(400'000);
    ::kill(world.process(1), signal);
  });
  const auto reports = world.run({.kind = kind, .bytes = 65536, .repeat = 1'000'000, .members = std::move(members)});
  hand.join();
  return reports;
}

void expect_rest_to_work(RankedLinkWorld& world) {
  EXPECT_NE(world.loss(1), "");
  EXPECT_EQ(world.loss(0), "");
  EXPECT_EQ(world.loss(2), "");
  for (const TrialReport& report : world.run({.bytes = 4096, .repeat = 5, .members = {0, 2}}))
    EXPECT_EQ(report.failure, "");
}

TEST(LinkWorld, names_a_rank_that_is_killed_in_a_trial_and_goes_on_without_it) {
  for (const Link wish : {Link::kAuto, Link::kTcp}) {
    for (const auto kind : {LinkTrial::Kind::kPair, LinkTrial::Kind::kGate}) {
      {
        RankedLinkWorld world = world_of_processes(3, wish);
        const bool gate = kind == LinkTrial::Kind::kGate;
        const auto reports = run_and_signal(world, kind, gate ? std::vector{0, 1, 2} : std::vector{0, 1}, SIGKILL);
        EXPECT_NE(reports[1].failure.find("rank 1 (process"), std::string::npos) << reports[1].failure;
        EXPECT_NE(reports[1].failure.find("was killed by signal 9"), std::string::npos) << reports[1].failure;
        EXPECT_NE(reports[0].failure, "");
        expect_rest_to_work(world);
      }
      EXPECT_TRUE(children_of(::getpid()).empty());
    }
  }
}

TEST(LinkWorld, counts_a_rank_that_stands_still_in_a_trial_as_a_time_out_and_goes_on_without_it) {
  for (const Link wish : {Link::kAuto, Link::kTcp}) {
    const int64_t begin_us = now_us();
    RankedLinkWorld world = world_of_processes(3, wish);
    const auto reports = run_and_signal(world, LinkTrial::Kind::kPair, {0, 1}, SIGSTOP);
    EXPECT_TRUE(reports[0].timed_out) << reports[0].failure;
    EXPECT_NE(reports[0].failure.find("waited 500 ms for rank 1"), std::string::npos) << reports[0].failure;
    EXPECT_NE(reports[1].failure.find("is stopped: continue it (kill -CONT)"), std::string::npos) << reports[1].failure;
    expect_rest_to_work(world);
    EXPECT_LT(now_us() - begin_us, 15'000'000);
  }
  EXPECT_TRUE(children_of(::getpid()).empty());
}

// The bare exchange blames nobody; it must end all the same.
TEST(LinkWorld, is_not_held_up_by_a_rank_that_stands_still_beside_the_floor) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    RankedLinkWorld world = world_of_processes(3, Link::kAuto);
    const auto reports = run_and_signal(world, LinkTrial::Kind::kGate, {0, 1, 2}, SIGSTOP);
    EXPECT_NE(reports[0].failure, "");
    EXPECT_NE(reports[2].failure, "");
    EXPECT_NE(reports[1].failure.find("is stopped"), std::string::npos) << reports[1].failure;
    expect_rest_to_work(world);
  }
}

TEST(LinkWorld, goes_on_when_a_rank_stood_still_before_its_links_were_made) {
  RankedLinkWorld world = world_of_processes(3, Link::kTcp);
  ::kill(world.process(1), SIGSTOP);
  const auto reports = world.run({.bytes = 4096, .repeat = 5, .members = {0, 1}});
  EXPECT_NE(reports[0].failure.find("rank 1 (process"), std::string::npos) << reports[0].failure;
  expect_rest_to_work(world);
}

}  // namespace
}  // namespace coprime
