#include "transport/progress_mirror.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "transport/socket.h"

namespace coprime {
namespace {

using Kind = ProgressPage::Kind;

std::pair<UniqueFd, UniqueFd> socket_pair() {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

bool comes_true(const std::function<bool()>& condition, int64_t within_us = 5'000'000) {
  const int64_t deadline_us = now_us() + within_us;
  while (!condition()) {
    if (now_us() > deadline_us) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Ranks 0 and 1 on the front's host, 2 and 3 on host A, 4 on host B.
struct Hosts {
  Hosts() {
    auto [front_a, end_a] = socket_pair();
    auto [front_b, end_b] = socket_pair();
    hub.emplace(front);
    hub->add(0b01100, std::move(front_a));
    hub->add(0b10000, std::move(front_b));
    mirror_a.emplace(a, 0b01100, std::move(end_a));
    mirror_b.emplace(b, 0b10000, std::move(end_b));
  }
  static std::shared_ptr<const ProgressPage> make(Kind kind) {
    return std::make_shared<const ProgressPage>(ProgressPage::create(5, kind));
  }
  std::shared_ptr<const ProgressPage> front = make(Kind::kFronts), a = make(Kind::kMirror), b = make(Kind::kMirror);
  std::optional<ProgressHub> hub;
  std::optional<ProgressMirror> mirror_a, mirror_b;
};

uint64_t count_of(const ProgressPage& page, int rank) { return page.counter(rank).load(std::memory_order_relaxed); }

TEST(ProgressMirror, counters_of_every_host_are_seen_on_every_other) {
  const Hosts hosts;
  for (int i = 0; i < 10; ++i) hosts.front->advance(0);
  for (int i = 0; i < 20; ++i) hosts.a->advance(3);
  for (int i = 0; i < 30; ++i) hosts.b->advance(4);
  for (const auto& page : {hosts.front, hosts.a, hosts.b}) {
    EXPECT_TRUE(
        comes_true([&] { return count_of(*page, 0) == 10 && count_of(*page, 3) == 20 && count_of(*page, 4) == 30; }));
    EXPECT_EQ(count_of(*page, 1) + count_of(*page, 2), 0u);
  }
}

TEST(ProgressMirror, a_host_whose_ranks_stand_still_is_seen_to_stand_still) {
  const Hosts hosts;
  hosts.a->advance(2);
  ASSERT_TRUE(comes_true([&] { return count_of(*hosts.b, 2) == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // longer than the heartbeat's period
  for (const auto& page : {hosts.front, hosts.a, hosts.b}) EXPECT_EQ(count_of(*page, 2), 1u);
}

TEST(ProgressMirror, a_move_is_seen_soon) {
  const Hosts hosts;
  std::vector<int64_t> times_us;
  for (uint64_t i = 1; i <= 20; ++i) {
    const int64_t start_us = now_us();
    hosts.a->advance(2);
    ASSERT_TRUE(comes_true([&] { return count_of(*hosts.b, 2) == i; }));
    times_us.push_back(now_us() - start_us);
  }
  std::ranges::sort(times_us);
  EXPECT_LT(times_us[times_us.size() / 2], 100'000);  // at most one period, and the way
}

// Ranks of three hosts give up on different ones at the same time: all name the same, unless the machine is so busy
// that the front's word is later than they wait.
TEST(ProgressMirror, all_hosts_agree_on_one_culprit) {
  const Hosts hosts;
  int in_time = 0;
  for (uint32_t epoch = 1; epoch <= 10; ++epoch) {
    std::array<Culprit, 4> named;
    std::array<int64_t, 4> took_us = {};
    const auto settle = [&](const ProgressPage& page, size_t slot, int rank, int blamed) {
      const int64_t start_us = now_us();
      named[slot] = page.settle(epoch, rank, blamed);
      took_us[slot] = now_us() - start_us;
    };
    std::vector<std::thread> ranks;
    ranks.emplace_back([&] { settle(*hosts.front, 0, 0, 1); });
    ranks.emplace_back([&] { settle(*hosts.a, 1, 2, 4); });
    ranks.emplace_back([&] { settle(*hosts.a, 2, 3, 0); });
    ranks.emplace_back([&] { settle(*hosts.b, 3, 4, 2); });
    for (std::thread& rank : ranks) rank.join();
    const std::optional<Culprit> verdict = hosts.front->verdict(epoch);
    ASSERT_TRUE(verdict.has_value());
    bool agreed = true;
    for (size_t slot = 0; slot < named.size(); ++slot) {
      agreed &= named[slot] == *verdict;
      EXPECT_TRUE(named[slot] == *verdict || took_us[slot] >= ProgressPage::kSettleUs) << epoch;
    }
    in_time += agreed;
    for (const auto& page : {hosts.a, hosts.b})
      EXPECT_TRUE(comes_true([&] { return page->verdict(epoch) == verdict; }));
  }
  EXPECT_GT(in_time, 0);
}

TEST(ProgressMirror, a_claim_comes_back_as_a_verdict_within_the_wait) {
  const Hosts hosts;
  EXPECT_EQ(hosts.b->settle(1, 4, 3), (Culprit{4, 3}));
  EXPECT_TRUE(comes_true([&] { return hosts.a->verdict(1) == Culprit{4, 3}; }));
  EXPECT_EQ(hosts.front->verdict(1), (Culprit{4, 3}));
}

TEST(ProgressMirror, a_host_that_hangs_up_is_gone_at_once_on_all_others) {
  Hosts hosts;
  hosts.a->advance(2);
  ASSERT_TRUE(comes_true([&] { return count_of(*hosts.b, 2) == 1; }));
  const int64_t start_us = now_us();
  hosts.mirror_a.reset();
  for (const auto& page : {hosts.front, hosts.b}) {
    EXPECT_TRUE(comes_true([&] { return page->is_gone(2) && page->is_gone(3); }));
    EXPECT_FALSE(page->is_gone(0) || page->is_gone(4));
  }
  EXPECT_LT(now_us() - start_us, 1'000'000);
}

TEST(ProgressMirror, a_rank_of_the_fronts_host_that_is_gone_is_told_to_the_others) {
  const Hosts hosts;
  hosts.front->mark_gone(1);
  EXPECT_TRUE(comes_true([&] { return hosts.a->is_gone(1) && hosts.b->is_gone(1); }));
}

TEST(ProgressMirror, without_a_front_nobody_waits_for_it) {
  Hosts hosts;
  hosts.hub.reset();
  ASSERT_TRUE(comes_true([&] {
    const int64_t start_us = now_us();
    hosts.a->settle(1, 2, 0);
    return now_us() - start_us < ProgressPage::kSettleUs / 2;
  }));
  EXPECT_EQ(hosts.a->settle(1, 2, 0), (Culprit{2, 0}));
}

// A host that is stopped takes nothing: the others do not wait for it, and it is up to date when it goes on.
TEST(ProgressMirror, a_host_that_does_not_read_delays_nobody) {
  const auto front = Hosts::make(Kind::kFronts), b = Hosts::make(Kind::kMirror);
  ProgressHub hub(front);
  auto [front_a, end_a] = socket_pair();
  auto [front_b, end_b] = socket_pair();
  const int small = 4096;
  ::setsockopt(front_a.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  hub.add(0b01100, std::move(front_a));
  hub.add(0b10000, std::move(front_b));
  const ProgressMirror mirror_b(b, 0b10000, std::move(end_b));
  for (int i = 1; i <= 60; ++i) {  // more frames than the socket holds
    front->advance(0);
    ASSERT_TRUE(comes_true([&] { return count_of(*b, 0) == static_cast<uint64_t>(i); })) << i;
  }
  const auto a = Hosts::make(Kind::kMirror);
  const ProgressMirror mirror_a(a, 0b01100, std::move(end_a));
  EXPECT_TRUE(comes_true([&] { return count_of(*a, 0) == 60; }));
}

// Host A says nothing, though its connection is open.
TEST(ProgressMirror, the_front_knows_whom_it_does_not_hear) {
  const auto front = Hosts::make(Kind::kFronts), b = Hosts::make(Kind::kMirror);
  ProgressHub hub(front);
  auto [front_a, end_a] = socket_pair();
  auto [front_b, end_b] = socket_pair();
  hub.add(0b01100, std::move(front_a));
  hub.add(0b10000, std::move(front_b));
  const ProgressMirror mirror_b(b, 0b10000, std::move(end_b));
  const int64_t start_us = now_us();
  ASSERT_TRUE(comes_true([&] { return front->is_silent(2, silence_us(0)) && front->is_silent(3, silence_us(0)); }));
  EXPECT_GE(now_us() - start_us, silence_us(0) - 100'000);
  EXPECT_TRUE(comes_true([&] { return !front->is_silent(4, kHeartbeatUs); }));
  EXPECT_FALSE(front->is_silent(0, 0)) << "it is of the front's host";
  EXPECT_FALSE(front->is_gone(2));
}

TEST(ProgressMirror, what_is_no_frame_ends_the_connection) {
  const auto front = Hosts::make(Kind::kFronts);
  ProgressHub hub(front);
  auto [front_a, end_a] = socket_pair();
  hub.add(0b01100, std::move(front_a));
  const std::vector<char> junk(4096, 'x');
  ::send(end_a.get(), junk.data(), junk.size(), MSG_NOSIGNAL);
  EXPECT_TRUE(comes_true([&] { return front->is_gone(2) && front->is_gone(3); }));
  EXPECT_EQ(count_of(*front, 2), 0u);
}

// A host that speaks for ranks of another one.
TEST(ProgressMirror, a_frame_about_foreign_ranks_ends_the_connection) {
  const auto front = Hosts::make(Kind::kFronts), liar = Hosts::make(Kind::kMirror);
  ProgressHub hub(front);
  auto [front_a, end_a] = socket_pair();
  hub.add(0b01100, std::move(front_a));
  liar->advance(4);
  const ProgressMirror mirror(liar, 0b11100, std::move(end_a));
  EXPECT_TRUE(comes_true([&] { return front->is_gone(2) && front->is_gone(3); }));
  EXPECT_FALSE(front->is_gone(4));
  EXPECT_EQ(count_of(*front, 4), 0u);
}

TEST(ProgressMirror, a_process_that_is_killed_is_gone_at_once) {
  const auto front = Hosts::make(Kind::kFronts);
  auto [front_a, end_a] = socket_pair();
  const pid_t child = ::fork();
  if (child == 0) {
    front_a.reset();
    const auto page = Hosts::make(Kind::kMirror);
    const ProgressMirror mirror(page, 0b01100, std::move(end_a));
    page->advance(2);
    ::pause();
  }
  end_a.reset();
  ProgressHub hub(front);
  hub.add(0b01100, std::move(front_a));
  EXPECT_TRUE(comes_true([&] { return count_of(*front, 2) == 1; }));
  const int64_t start_us = now_us();
  ::kill(child, SIGKILL);
  EXPECT_TRUE(comes_true([&] { return front->is_gone(2); }));
  EXPECT_LT(now_us() - start_us, 1'000'000);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace coprime
