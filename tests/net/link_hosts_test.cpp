// Links between hosts as an operator measures them: two ranks beside the front on host 0, one that joins from host 1.
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>

#include "net/test_hosts.h"
#include "program.h"
#include "worlds.h"

namespace coprime {
namespace {

constexpr int kFront = 0, kFar = 1;
constexpr int kPatienceMs = 60'000;  // of what should end soon, on a busy machine

class LinkHosts : public ::testing::Test {
 protected:
  LinkHosts() : folder_(golden_directory("mini-qwen35")), key_((folder_.path() / "world.key").string()) {
    EXPECT_EQ(run_program({"key", key_}).exit_code, 0);
  }

  HostProgram start_link(const std::vector<std::string>& more) const {
    std::vector<std::string> words{COPRIME_PROGRAM, "link", "--ranks",  "3",
                                   "--remote",      "1",    "--listen", hosts_.address(kFront) + ":7100",
                                   "--key-file",    key_,   "--json"};
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.begin(), prefix_.begin(), prefix_.end());
    return hosts_.start(kFront, words);
  }
  HostProgram start_far_rank(bool once = true) const {
    std::vector<std::string> words{COPRIME_PROGRAM, "rank", "--join", hosts_.address(kFront) + ":7100",
                                   "--key-file",    key_};
    if (once) words.emplace_back("--once");
    words.insert(words.begin(), prefix_.begin(), prefix_.end());
    return hosts_.start(kFar, words);
  }
  // The trial of ranks 0 and 2 has begun: many packets go both ways.
  void wait_for_trial_with_far_rank() {
    const uint64_t carried = hosts_.way(kFar, kFront).carried;
    for (int i = 0; i < 3000 && hosts_.way(kFar, kFront).carried < carried + 500; ++i) ::usleep(20'000);
    ASSERT_GE(hosts_.way(kFar, kFront).carried, carried + 500);
  }
  static nlohmann::json figures_of(HostProgram& link, int exit_code) {
    EXPECT_EQ(link.wait(kPatienceMs), exit_code) << link.err();
    return nlohmann::json::parse(link.out(), nullptr, false);
  }

  TestHosts hosts_{2};
  const ModelCopy folder_;
  const std::string key_;
  std::vector<std::string> prefix_;  // of every command line
};

TEST_F(LinkHosts, have_figures_of_every_pair_and_a_floor_between_them) {
  hosts_.delay_us(3000);
  HostProgram far = start_far_rank(),
              link = start_link({"--sizes", "4K,64K", "--repeat", "5", "--gate-timeout-ms", "20000"});
  const auto figures = figures_of(link, 0);
  EXPECT_EQ(far.wait(kPatienceMs), 0) << far.err();
  ASSERT_EQ(figures["hosts"].size(), 2u) << link.out();
  EXPECT_EQ(figures["hosts"][1]["name"], hosts_.address(kFar));
  EXPECT_EQ(figures["hosts"][1]["ranks"], std::vector<int>{2});
  ASSERT_EQ(figures["pairs"].size(), 12u);
  for (const auto& pair : figures["pairs"]) {
    const bool between = pair["from"] == 2 || pair["to"] == 2;
    EXPECT_EQ(pair["link"], between ? "tcp" : "shm");
    EXPECT_EQ(pair["one_way_by"], between ? "half of the round trip" : "one clock");
    if (between) {
      EXPECT_GE(pair["round_trip_p50_us"], 6000);
      EXPECT_LT(pair["round_trip_p50_us"], 60'000);
    }
  }
  ASSERT_EQ(figures["gate"].size(), 2u);
  for (const auto& gate : figures["gate"]) {
    EXPECT_GE(gate["p50_us"], 3000);
    EXPECT_GE(gate["floor_p50_us"], 2500);  // the line-up before it takes a little of the cable's time
    EXPECT_LT(gate["floor_p50_us"], 60'000);
  }
  EXPECT_EQ(figures["wrong"], 0);
}

// Both hosts have an RDMA device that opens and then makes no pair.
TEST_F(LinkHosts, whose_rdma_devices_make_no_pair_are_measured_over_tcp_and_say_so_once) {
  prefix_ = {"/usr/bin/env", "LD_LIBRARY_PATH=" COPRIME_FAKE_VERBS};
  HostProgram far = start_far_rank(),
              link = start_link({"--sizes", "4K", "--repeat", "5", "--gate-timeout-ms", "20000"});
  const auto figures = figures_of(link, 0);
  EXPECT_EQ(far.wait(kPatienceMs), 0) << far.err();
  ASSERT_EQ(figures["link_notes"].size(), 2u) << link.out();
  for (const int rank : {0, 1}) {
    const std::string words = fmt::format("ranks {} and 2 use tcp, not verbs: broken0 makes no queue pair", rank);
    EXPECT_EQ(figures["link_notes"][static_cast<size_t>(rank)].get<std::string>().find(words), 0u) << link.out();
    const size_t at = link.err().find("coprime: " + words);
    EXPECT_NE(at, std::string::npos) << link.err();
    EXPECT_EQ(link.err().find(words, at + words.size()), std::string::npos) << link.err();
  }
  ASSERT_EQ(figures["pairs"].size(), 6u) << link.out();
  for (const auto& pair : figures["pairs"])
    EXPECT_EQ(pair["link"], pair["from"] == 2 || pair["to"] == 2 ? "tcp" : "shm");
  EXPECT_EQ(figures["wrong"], 0);
}

TEST_F(LinkHosts, are_told_that_they_share_no_memory_before_anything_is_measured) {
  HostProgram far = start_far_rank(), link = start_link({"--link", "shm"});
  EXPECT_EQ(link.wait(kPatienceMs), 4) << link.err();
  EXPECT_NE(link.err().find("ranks 0 and 2 share no memory (they are on different hosts)"), std::string::npos)
      << link.err();
  EXPECT_EQ(link.out(), "");
  EXPECT_EQ(far.wait(kPatienceMs), 4) << far.err();
  EXPECT_NE(far.err().find("share no memory"), std::string::npos) << far.err();
}

TEST_F(LinkHosts, whose_cable_is_cut_in_a_trial_end_with_a_time_out_and_the_figures_so_far) {
  HostProgram far = start_far_rank(),
              link = start_link({"--sizes", "4K", "--repeat", "3000", "--gate-timeout-ms", "1000"});
  hosts_.delay_us(2000);
  wait_for_trial_with_far_rank();
  const std::vector<pid_t> local = children_of(link.pid());
  hosts_.cut(kFront, kFar);
  const auto figures = figures_of(link, 4);
  EXPECT_GE(figures["timeouts"], 1) << link.out();
  EXPECT_EQ(figures["pairs"].size(), 2u) << link.out();  // ranks 0 and 1
  EXPECT_NE(link.err().find("waited 1000 ms for rank 2"), std::string::npos) << link.err();
  EXPECT_NE(link.out().find("rank 2 (10.77.0.2"), std::string::npos) << link.out();
  for (const pid_t rank : local) EXPECT_FALSE(is_alive(rank));
  // The far rank cannot hear that all is over: it ends when its kernel has given up the front.
  EXPECT_EQ(far.wait(kPatienceMs), 4) << far.err();
}

TEST_F(LinkHosts, whose_far_rank_is_killed_in_a_trial_end_at_once_and_name_it) {
  HostProgram far = start_far_rank(),
              link = start_link({"--sizes", "4K", "--repeat", "3000", "--gate-timeout-ms", "20000"});
  hosts_.delay_us(2000);
  wait_for_trial_with_far_rank();
  far.signal(SIGKILL);
  const auto figures = figures_of(link, 4);
  EXPECT_GE(figures["bail_outs"], 1) << link.out();
  EXPECT_EQ(figures["timeouts"], 0) << link.out();
  EXPECT_NE(link.out().find("rank 2 (10.77.0.2"), std::string::npos) << link.out();
  EXPECT_NE(link.out().find("hung up"), std::string::npos) << link.out();
}

TEST_F(LinkHosts, whose_far_rank_is_killed_while_others_are_measured_name_it_and_keep_their_figures) {
  HostProgram far = start_far_rank(),
              link = start_link({"--sizes", "4K", "--repeat", "5000", "--gate-timeout-ms", "20000"});
  ASSERT_TRUE(far.says("joined", kPatienceMs)) << far.err();
  ::usleep(200'000);
  far.signal(SIGKILL);
  const auto figures = figures_of(link, 4);
  EXPECT_EQ(figures["pairs"].size(), 2u) << link.out();
  ASSERT_EQ(figures["failures"].size(), 1u) << link.out();
  const std::string why = figures["failures"][0];
  EXPECT_NE(why.find("left out: rank 2 (10.77.0.2"), std::string::npos) << why;
  EXPECT_NE(why.find("hung up"), std::string::npos) << why;
}

TEST_F(LinkHosts, whose_far_rank_is_stopped_in_a_trial_end_and_it_serves_the_next_world_when_it_goes_on) {
  HostProgram far = start_far_rank(false),
              link = start_link({"--sizes", "4K", "--repeat", "3000", "--gate-timeout-ms", "1000"});
  hosts_.delay_us(2000);
  wait_for_trial_with_far_rank();
  far.signal(SIGSTOP);
  const auto figures = figures_of(link, 4);
  EXPECT_GE(figures["timeouts"], 1) << link.out();
  EXPECT_NE(link.out().find("does not answer"), std::string::npos) << link.out();
  far.signal(SIGCONT);
  hosts_.delay_us(0);
  HostProgram again = start_link({"--sizes", "4K", "--repeat", "5", "--gate-timeout-ms", "20000"});
  EXPECT_EQ(figures_of(again, 0)["failures"].size(), 0u) << again.err() << far.err();
}

}  // namespace
}  // namespace coprime
