// Worlds over hosts as an operator meets them: two ranks beside the front on host 0, one that joins from host 1. Cables
// that are slow, lossy or cut, and a host whose rank dies or stands still.
#include <gtest/gtest.h>
#include <signal.h>

#include "base/clock.h"
#include "net/test_hosts.h"
#include "program.h"
#include "worlds.h"

namespace coprime {
namespace {

constexpr int kFront = 0, kFar = 1;
constexpr int kDeadlineMs = 1000;
constexpr int kPatienceMs = 60'000;  // of what should end soon, on a busy machine
// Beyond the deadline: 100 ms for the error, and a busy machine's scheduling.
constexpr int kSlackMs = 100 + 1000;

const std::string kQuestion =
    "Sam starts with 32 tickets. 9 of the tickets break. A friend gives Sam 31 tickets. Soon Sam has 5 times as many "
    "tickets. Sam buys 80 tickets. How many tickets are left with Sam?";
const std::string kAnswer = "32 - 9 = 23\n23 + 31 = 54\n54 * 5 = 270\n270 + 80 = 350\n#### 350\n";

// Two hosts with the key of a world.
class HostsWorld : public ::testing::Test {
 protected:
  HostsWorld() : folder_(golden_directory("mini-qwen35")), key_((folder_.path() / "world.key").string()) {
    EXPECT_EQ(run_program({"key", key_}).exit_code, 0);
  }

  HostProgram start_front(int deadline_ms = kDeadlineMs, const std::string& link = "auto") const {
    return start(kFront, {"generate", "--model", folder_.path().string(), "--ranks", "3", "--remote", "1", "--listen",
                          meeting(), "--key-file", key_, "--chat", kQuestion, "--temperature", "0", "--link", link,
                          "--gate-timeout-ms", std::to_string(deadline_ms)});
  }
  HostProgram start_far_rank(std::vector<std::string> more = {"--once"}) const {
    std::vector<std::string> words{"rank", "--join", meeting(), "--key-file", key_};
    words.insert(words.end(), more.begin(), more.end());
    return start(kFar, words);
  }
  HostProgram start(int host, const std::vector<std::string>& words) const {
    std::vector<std::string> all{COPRIME_PROGRAM};
    if (own_sys_)
      all = {"/usr/bin/unshare", "-m", "/bin/sh", "-c", "mount -t sysfs sysfs /sys && exec \"$0\" \"$@\"",
             COPRIME_PROGRAM};
    all.insert(all.end(), words.begin(), words.end());
    return hosts_.start(host, all);
  }
  std::string meeting() const { return hosts_.address(kFront) + ":7100"; }

  // A world in the middle of a decode that takes some seconds.
  struct Running {
    HostProgram far, front;
    std::vector<pid_t> local_ranks;
  };
  Running start_decode(const std::string& link = "auto") {
    hosts_.delay_us(5000);
    Running world{start_far_rank(), start_front(kDeadlineMs, link), {}};
    EXPECT_TRUE(world.front.says("32 -", kPatienceMs)) << world.front.err();
    world.local_ranks = children_of(world.front.pid());
    EXPECT_EQ(world.local_ranks.size(), 2u);
    return world;
  }

  // The front ends with a link's error that has the words, in time, and its ranks with it.
  static void expect_end_of_front(Running& world, const std::string& words, int within_ms, int64_t since_us) {
    EXPECT_EQ(world.front.wait(kPatienceMs), 4) << world.front.err();
    const int64_t took_ms = (now_us() - since_us) / 1000;
    ::testing::Test::RecordProperty("front_ended_after_ms", static_cast<int>(took_ms));
    EXPECT_LE(took_ms, within_ms);
    EXPECT_NE(world.front.err().find(words), std::string::npos) << world.front.err();
    EXPECT_EQ(world.front.out().find("####"), std::string::npos);
    for (const pid_t rank : world.local_ranks) EXPECT_FALSE(is_alive(rank)) << rank;
  }

  // It cannot hear that the world is over, and says what it saw itself.
  static void expect_end_of_far_rank(Running& world, int64_t since_us) {
    EXPECT_EQ(world.far.wait(kPatienceMs), 4) << world.far.err();
    const int64_t took_ms = (now_us() - since_us) / 1000;
    ::testing::Test::RecordProperty("far_rank_ended_after_ms", static_cast<int>(took_ms));
    const std::string told = world.far.err();
    EXPECT_LE(took_ms, kDeadlineMs + kSlackMs) << told;
    EXPECT_NE(told.find("the front is not heard any more"), std::string::npos) << told;
  }

  TestHosts hosts_{2};
  const ModelCopy folder_;
  const std::string key_;
  bool own_sys_ = false;
};

TEST_F(HostsWorld, answers_as_on_one_host) {
  HostProgram far = start_far_rank(), front = start_front();
  EXPECT_EQ(front.wait(kPatienceMs), 0) << front.err();
  EXPECT_EQ(front.out(), kAnswer);
  EXPECT_EQ(far.wait(kPatienceMs), 0) << far.err();
  EXPECT_GT(hosts_.way(kFar, kFront).carried, 100u);
}

// Both hosts have an RDMA device that opens and then makes no pair.
TEST_F(HostsWorld, whose_rdma_devices_make_no_pair_answers_over_tcp_and_warns) {
  const std::vector<std::string> with_device{"/usr/bin/env", "LD_LIBRARY_PATH=" COPRIME_FAKE_VERBS, COPRIME_PROGRAM};
  const auto words = [&](std::vector<std::string> more) {
    std::vector<std::string> all = with_device;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  HostProgram far = hosts_.start(kFar, words({"rank", "--join", meeting(), "--key-file", key_, "--once"}));
  HostProgram front = hosts_.start(
      kFront, words({"generate", "--model", folder_.path().string(), "--ranks", "3", "--remote", "1", "--listen",
                     meeting(), "--key-file", key_, "--chat", kQuestion, "--temperature", "0", "--stats"}));
  EXPECT_EQ(front.wait(kPatienceMs), 0) << front.err();
  EXPECT_EQ(front.out().substr(0, kAnswer.size()), kAnswer);
  for (const char* pair : {"0 and 2", "1 and 2"}) {
    const std::string words_of_both =
        fmt::format("ranks {} use tcp, not verbs: broken0 makes no queue pair: create_cq", pair);
    EXPECT_NE(front.err().find("coprime: " + words_of_both), std::string::npos) << front.err();
    EXPECT_NE(front.err().find("         " + words_of_both), std::string::npos) << front.err();
  }
  EXPECT_NE(front.err().find("links    shm 0-1; tcp 0-2, 1-2"), std::string::npos) << front.err();
  EXPECT_EQ(far.wait(kPatienceMs), 0) << far.err();
}

// The two ranks of the front's host meet where the front listens, too.
TEST_F(HostsWorld, answers_where_no_ranks_share_memory) {
  HostProgram far = start_far_rank(), front = start_front(kDeadlineMs, "tcp");
  EXPECT_EQ(front.wait(kPatienceMs), 0) << front.err();
  EXPECT_EQ(front.out(), kAnswer);
}

// UCX finds cards in /sys, which shows those of the host that mounted it.
TEST_F(HostsWorld, answers_over_ucx_and_ends_after_the_deadline_when_the_cable_is_cut) {
  own_sys_ = true;
  {
    HostProgram far = start_far_rank(), front = start_front(kDeadlineMs, "ucx");
    ASSERT_EQ(front.wait(kPatienceMs), 0) << front.err();
    EXPECT_EQ(front.out(), kAnswer);
    EXPECT_GT(hosts_.way(kFar, kFront).carried, 100u);
  }
  Running world = start_decode("ucx");
  const int64_t cut_us = now_us();
  hosts_.cut(kFront, kFar);
  expect_end_of_front(world, "over ucx: ", kDeadlineMs + kSlackMs, cut_us);
  expect_end_of_far_rank(world, cut_us);
}

TEST_F(HostsWorld, answers_right_over_20_ms_and_over_lost_packets) {
  hosts_.delay_us(20'000);
  {
    HostProgram far = start_far_rank(), front = start_front();
    EXPECT_EQ(front.wait(kPatienceMs), 0) << front.err();
    EXPECT_EQ(front.out(), kAnswer);
  }
  hosts_.delay_us(0);
  hosts_.loss(0.002);
  HostProgram far = start_far_rank(), front = start_front(20000);
  EXPECT_EQ(front.wait(kPatienceMs), 0) << front.err();
  EXPECT_EQ(front.out(), kAnswer);
  EXPECT_GT(hosts_.way(kFar, kFront).dropped + hosts_.way(kFront, kFar).dropped, 0u);
}

TEST_F(HostsWorld, whose_cable_is_cut_ends_on_both_sides_soon_after_the_deadline) {
  Running world = start_decode();
  const int64_t cut_us = now_us();
  hosts_.cut(kFront, kFar);
  expect_end_of_front(world, "nothing is heard of rank 2 (10.77.0.2", kDeadlineMs + kSlackMs, cut_us);
  expect_end_of_far_rank(world, cut_us);
}

TEST_F(HostsWorld, whose_far_card_loses_its_link_ends_on_both_sides_soon_after_the_deadline) {
  Running world = start_decode();
  const int64_t cut_us = now_us();
  hosts_.set_link(kFar, false);
  expect_end_of_front(world, "nothing is heard of rank 2 (10.77.0.2", kDeadlineMs + kSlackMs, cut_us);
  expect_end_of_far_rank(world, cut_us);
}

TEST_F(HostsWorld, whose_cable_is_cut_leaves_no_rank_spinning) {
  hosts_.delay_us(5000);
  HostProgram far = start_far_rank({}), front = start_front();
  ASSERT_TRUE(front.says("32 -", kPatienceMs)) << front.err();
  hosts_.cut(kFront, kFar);
  EXPECT_EQ(front.wait(kPatienceMs), 4) << front.err();
  ::usleep((kDeadlineMs + kSlackMs) * 1000);
  const int64_t before = cpu_ticks(far.pid());
  ::usleep(2'000'000);
  EXPECT_LE(cpu_ticks(far.pid()) - before, 10) << "of 200 in two seconds";
  EXPECT_EQ(far.wait(0), std::nullopt) << "it should try to join again: " << far.err();
}

TEST_F(HostsWorld, whose_far_rank_is_killed_says_so_at_once) {
  Running world = start_decode();
  const int64_t killed_us = now_us();
  world.far.signal(SIGKILL);
  expect_end_of_front(world, "rank 2 (10.77.0.2", kDeadlineMs, killed_us);
  EXPECT_EQ(world.far.wait(kPatienceMs), 128 + SIGKILL);
}

TEST_F(HostsWorld, whose_far_rank_is_stopped_ends_after_the_deadline_and_the_rank_when_it_goes_on) {
  Running world = start_decode();
  const int64_t stopped_us = now_us();
  world.far.signal(SIGSTOP);
  expect_end_of_front(world, "nothing is heard of rank 2 (10.77.0.2", kDeadlineMs + kSlackMs, stopped_us);
  EXPECT_EQ(world.far.wait(0), std::nullopt);
  world.far.signal(SIGCONT);
  EXPECT_EQ(world.far.wait(kPatienceMs), 4) << world.far.err();
}

TEST_F(HostsWorld, whose_front_is_killed_is_left_by_the_far_rank) {
  Running world = start_decode();
  world.front.signal(SIGKILL);
  EXPECT_EQ(world.far.wait(kPatienceMs), 4) << world.far.err();
  const int64_t end_us = now_us() + 2'000'000;
  for (const pid_t rank : world.local_ranks) {
    while (is_alive(rank) && now_us() < end_us) ::usleep(1000);
    EXPECT_FALSE(is_alive(rank));
  }
}

}  // namespace
}  // namespace coprime
