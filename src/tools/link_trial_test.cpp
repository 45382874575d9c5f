// One rank's part of a measurement: over every link, and where a link does what it should not.
#include "tools/link_trial.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <numeric>

#include "base/clock.h"
#include "gate/testing.h"

namespace coprime {
namespace {

using testing::Link;
using testing::TestWorld;

// Runs the trial on threads; `before` may do something to a rank's exchange first.
std::vector<TrialReport> run_on(Link link, int ranks, LinkTrial trial, int timeout_ms = 20'000,
                                const std::function<bool(int, Exchange&)>& before = {}) {
  trial.members.resize(static_cast<size_t>(ranks));
  std::iota(trial.members.begin(), trial.members.end(), 0);
  const TestWorld world(link, ranks, link_schedule(trial));
  const auto bytes = static_cast<size_t>(trial.bytes);
  const auto region = std::make_shared<const ShmRegion>(ShmRegion::create(ranks, bytes));
  std::vector<TrialReport> reports(static_cast<size_t>(ranks));
  testing::run_threads(ranks, [&](int rank) {
    const auto exchange = world.join(rank, world.settings(timeout_ms));
    BareExchange bare(bare_window(region, rank), bytes, false);
    if (before && !before(rank, *exchange)) return;
    reports[static_cast<size_t>(rank)] =
        run_link_trial(trial, {*exchange, world.progress(), before ? nullptr : &bare, timeout_ms});
  });
  return reports;
}

TEST(LinkTrial, a_pair_times_and_compares_every_transfer_on_every_link) {
  for (const Link link : {Link::kShm, Link::kTcp, Link::kUc, Link::kApple}) {
    for (const int64_t bytes : {4, 4096, 20480, 200'000}) {
      const auto reports = run_on(link, 2, {.kind = LinkTrial::Kind::kPair, .bytes = bytes, .repeat = 3});
      for (const TrialReport& report : reports) {
        EXPECT_EQ(report.failure, "");
        const bool is_uc = link == Link::kUc || link == Link::kApple;
        EXPECT_EQ(report.link, is_uc ? "soft UC" : testing::link_name(link));
        EXPECT_EQ(report.wrong, 0);
        // One way, there and back, a stream to this rank, and both streams' half.
        EXPECT_EQ(report.transfers, 3 * (1 + 1 + 2 * kStreamPushes));
        for (const auto* times : {&report.times.first_begin, &report.times.second_end, &report.times.round_trip,
                                  &report.times.stream_first, &report.times.stream_both})
          EXPECT_EQ(times->size(), 3u);
      }
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_LT(reports[0].times.first_begin[i], reports[1].times.first_end[i]);
        EXPECT_LT(reports[1].times.second_begin[i], reports[0].times.second_end[i]);
      }
    }
  }
}

TEST(LinkTrial, gates_by_all_ways_give_the_sum_at_every_rank_count) {
  for (const Link link : {Link::kShm, Link::kTcp, Link::kMixed, Link::kUc, Link::kApple}) {
    for (const int ranks : {2, 3, 5}) {
      for (const int64_t bytes : {4, 1020, 16384}) {
        for (const TrialReport& report :
             run_on(link, ranks, {.kind = LinkTrial::Kind::kGate, .bytes = bytes, .repeat = 3})) {
          EXPECT_EQ(report.failure, "");
          EXPECT_EQ(report.wrong, 0) << ranks << " ranks, " << bytes << " bytes";
          EXPECT_EQ(report.transfers, 9);
          EXPECT_EQ(report.times.gate.size(), 3u);
          EXPECT_EQ(report.times.owners.size(), 3u);
          EXPECT_EQ(report.times.bare.size(), 3u);
        }
      }
    }
  }
}

TEST(LinkTrial, counts_vectors_that_are_not_what_the_seed_says) {
  const LinkTrial trial{.kind = LinkTrial::Kind::kGate, .bytes = 1024, .repeat = 2, .members = {0, 1}};
  const TestWorld world(Link::kTcp, 2, link_schedule(trial));
  std::array<TrialReport, 2> reports;
  testing::run_threads(2, [&](int rank) {  // rank 1 sends the vectors of another seed
    const auto exchange = world.join(rank);
    LinkTrial own = trial;
    own.seed += static_cast<uint32_t>(rank);
    reports[static_cast<size_t>(rank)] = run_link_trial(own, {*exchange, world.progress(), nullptr, 20'000});
  });
  for (const TrialReport& report : reports) {
    EXPECT_EQ(report.failure, "");
    EXPECT_EQ(report.wrong, report.transfers);
  }
}

TEST(LinkTrial, tells_a_time_out_from_a_peer_that_left) {
  const LinkTrial trial{.kind = LinkTrial::Kind::kPair, .bytes = 64, .repeat = 1, .members = {0, 1}};
  std::atomic<bool> over = false;
  const auto stands_still = [&](int rank, Exchange&) {
    if (rank == 0) return true;
    for (const int64_t end_us = now_us() + 10'000'000; !over && now_us() < end_us;) ::usleep(1000);
    return false;
  };
  const TestWorld world(Link::kShm, 2, link_schedule(trial));
  TrialReport waited;
  testing::run_threads(2, [&](int rank) {
    const auto exchange = world.join(rank, world.settings(200));
    if (!stands_still(rank, *exchange)) return;
    waited = run_link_trial(trial, {*exchange, world.progress(), nullptr, 200});
    over = true;
  });
  EXPECT_TRUE(waited.timed_out);
  EXPECT_NE(waited.failure.find("waited 200 ms for rank 1"), std::string::npos) << waited.failure;
  EXPECT_NE(waited.failure.find("at exchange 0 of the trial"), std::string::npos) << waited.failure;
  EXPECT_EQ(waited.failure.find("layer"), std::string::npos) << waited.failure;

  const auto reports = run_on(Link::kTcp, 2, trial, 5000, [](int rank, Exchange&) { return rank == 0; });
  EXPECT_FALSE(reports[0].timed_out);
  EXPECT_NE(reports[0].failure.find("lost rank 1"), std::string::npos) << reports[0].failure;
}

// Ranks 1 and 3 of a world of five.
TEST(LinkTrial, members_of_a_larger_world_need_nobody_else) {
  for (const bool shared : {true, false}) {
    for (const auto kind : {LinkTrial::Kind::kPair, LinkTrial::Kind::kGate}) {
      const LinkTrial trial{.kind = kind, .bytes = 4096, .repeat = 3, .members = {1, 3}};
      const auto progress = std::make_shared<const ProgressPage>(ProgressPage::create(5));
      std::array<WorldLinks, 2> links;
      std::array<UniqueFd, 2> ends;
      int fds[2];
      ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
      ends = {UniqueFd(fds[0]), UniqueFd(fds[1])};
      const auto region =
          std::make_shared<const ShmRegion>(ShmRegion::create(2, largest_slot_bytes(link_schedule(trial))));
      std::array<TrialReport, 2> reports;
      testing::run_threads(2, [&](int index) {
        const auto at = static_cast<size_t>(index);
        WorldLinks own{.rank = trial.members[at], .ranks = 5};
        own.peers.resize(5);
        if (shared) {
          own.region = region;
          own.region_ranks = trial.members;
        } else {
          own.peers[static_cast<size_t>(trial.members[1 - at])].socket = std::move(ends[at]);
        }
        const ExchangeSettings settings{.wait = choose_wait_policy(usable_cores(), 2, 1), .timeout_ms = 20'000};
        Exchange exchange(std::move(own), link_schedule(trial), progress, settings);
        reports[at] = run_link_trial(trial, {exchange, *progress, nullptr, 20'000});
        EXPECT_STREQ(exchange.link(0), "none");
      });
      for (const TrialReport& report : reports) {
        EXPECT_EQ(report.failure, "");
        EXPECT_EQ(report.wrong, 0);
        EXPECT_GT(report.transfers, 0);
        EXPECT_EQ(report.link, shared ? "shm" : "tcp");
      }
    }
  }
}

TEST(BareExchange, adds_over_memory_and_sockets_at_once) {
  // Ranks 0 and 2 share memory, both have a socket to rank 3; rank 1 takes no part.
  const auto region = std::make_shared<const ShmRegion>(ShmRegion::create(2, 400));
  std::array<BareLinks, 3> links;
  const std::array<int, 3> ranks{0, 2, 3};
  for (size_t i = 0; i < 3; ++i) links[i] = {.rank = ranks[i], .ranks = 4, .sockets = std::vector<UniqueFd>(4)};
  for (size_t i = 0; i < 2; ++i) {
    links[i].region = region;
    links[i].region_ranks = {0, 2};
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    links[i].sockets[3] = UniqueFd(fds[0]);
    links[2].sockets[static_cast<size_t>(ranks[i])] = UniqueFd(fds[1]);
  }
  std::array<std::vector<float>, 3> sums;
  testing::run_threads(3, [&](int index) {
    const auto at = static_cast<size_t>(index);
    BareExchange bare(std::move(links[at]), 400, false);
    for (int round = 0; round < 5; ++round) {
      const std::vector<float> in(100, static_cast<float>((round + 1) * (1 << 4 * index)));
      sums[at].assign(100, 0);
      bare.run(in.data(), sums[at].data(), 100);
      EXPECT_EQ(sums[at], std::vector<float>(100, static_cast<float>((round + 1) * 0x111)));
    }
  });
}

TEST(BareExchange, ends_when_its_watch_says_so_or_a_rank_leaves) {
  const auto give_up = [](int64_t still_us) {
    if (still_us > 50'000) fail(ErrorKind::kLink, "it stood still");
  };
  const auto region = std::make_shared<const ShmRegion>(ShmRegion::create(2, 4));
  BareExchange waits(bare_window(region, 0), 4, false, give_up);
  const float in = 1;
  float sum = 0;
  EXPECT_THROW(waits.run(&in, &sum, 1), Error);
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  UniqueFd other(fds[1]);
  const auto links = [](int fd) {
    BareLinks result{.rank = 0, .ranks = 2, .sockets = std::vector<UniqueFd>(2)};
    result.sockets[1] = UniqueFd(fd);
    return result;
  };
  const int again = ::dup(fds[0]);
  EXPECT_THROW(BareExchange(links(fds[0]), 4, false, give_up).run(&in, &sum, 1), Error);
  other.reset();
  EXPECT_THROW(BareExchange(links(again), 4, false).run(&in, &sum, 1), Error);
}

TEST(LinkTrial, survives_its_json) {
  const LinkTrial trial{LinkTrial::Kind::kGate, 20480, 7, 3, {0, 2, 5}};
  const LinkTrial again = link_trial_from_json(to_json(trial));
  EXPECT_EQ(again.kind, trial.kind);
  EXPECT_EQ(again.bytes, 20480);
  EXPECT_EQ(again.repeat, 7);
  EXPECT_EQ(again.seed, 3u);
  EXPECT_EQ(again.members, trial.members);
  EXPECT_EQ(again.index_of(2), 1);
  EXPECT_EQ(again.index_of(1), -1);
}

TEST(TrialReport, survives_its_json_and_refuses_other_text) {
  TrialReport report;
  report.times.round_trip = {1, 2, 3};
  report.times.bare = {7};
  report.link = "tcp";
  report.transfers = 5;
  report.failure = "lost \"it\"\n";
  report.timed_out = true;
  const TrialReport again = trial_report_from_json(to_json(report));
  EXPECT_EQ(again.times.round_trip, report.times.round_trip);
  EXPECT_EQ(again.times.bare, report.times.bare);
  EXPECT_EQ(again.link, "tcp");
  EXPECT_EQ(again.transfers, 5);
  EXPECT_EQ(again.failure, report.failure);
  EXPECT_TRUE(again.timed_out);
  EXPECT_THROW(trial_report_from_json("{}"), Error);
  EXPECT_THROW(trial_report_from_json("no JSON"), Error);
}

}  // namespace
}  // namespace coprime
