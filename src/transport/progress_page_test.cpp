#include "transport/progress_page.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "base/clock.h"

namespace coprime {
namespace {

using Kind = ProgressPage::Kind;

UniqueFd duplicate(int fd) { return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

TEST(ProgressPage, counters_are_seen_by_all) {
  const ProgressPage page = ProgressPage::create(16), other = ProgressPage::attach(duplicate(page.fd()));
  EXPECT_EQ(other.ranks(), 16);
  EXPECT_EQ(other.kind(), Kind::kFronts);
  page.advance(3);
  page.advance(3);
  EXPECT_EQ(other.counter(3).load(), 2u);
  EXPECT_EQ(other.counter(2).load(), 0u);
  EXPECT_GE(reinterpret_cast<std::byte*>(&page.counter(1)) - reinterpret_cast<std::byte*>(&page.counter(0)), 64);
}

TEST(ProgressPage, the_first_to_settle_wins) {
  const ProgressPage page = ProgressPage::create(4);
  EXPECT_EQ(page.verdict(1), std::nullopt);
  EXPECT_EQ(page.settle(1, 2, 0), (Culprit{2, 0}));
  EXPECT_EQ(page.settle(1, 3, 1), (Culprit{2, 0}));
  EXPECT_EQ(page.verdict(1), (Culprit{2, 0}));
}

// 16 processes find different culprits at the same time, and all name the same one.
TEST(ProgressPage, processes_that_settle_at_once_agree) {
  for (int round = 0; round < 20; ++round) {
    const ProgressPage page = ProgressPage::create(16);
    std::vector<pid_t> children;
    for (int rank = 0; rank < 16; ++rank) {
      children.push_back(::fork());
      if (children.back() != 0) continue;
      while (page.counter(0).load() == 0) {
      }
      const Culprit culprit = page.settle(7, rank, (rank + 5) % 16);
      ::_exit(culprit.origin * 16 + culprit.blamed);
    }
    page.advance(0);
    const auto settle_status = [](pid_t child) {
      int status = 0;
      ::waitpid(child, &status, 0);
      return WEXITSTATUS(status);
    };
    const int first = settle_status(children[0]);
    for (size_t i = 1; i < children.size(); ++i) EXPECT_EQ(settle_status(children[i]), first);
    EXPECT_EQ(first % 16, (first / 16 + 5) % 16);
  }
}

TEST(ProgressPage, a_verdict_of_an_earlier_epoch_counts_no_longer) {
  const ProgressPage page = ProgressPage::create(3);
  page.settle(1, 0, 2);
  EXPECT_EQ(page.verdict(2), std::nullopt);
  EXPECT_EQ(page.settle(2, 1, 0), (Culprit{1, 0}));
  EXPECT_EQ(page.settle(1, 2, 1), (Culprit{2, 1}));  // late: it speaks of what is over, and changes nothing
  EXPECT_EQ(page.verdict(2), (Culprit{1, 0}));
}

TEST(ProgressPage, who_is_gone_stays_gone) {
  const ProgressPage page = ProgressPage::create(3), other = ProgressPage::attach(duplicate(page.fd()));
  EXPECT_FALSE(other.is_gone(1));
  page.mark_gone(1);
  EXPECT_TRUE(other.is_gone(1));
  EXPECT_FALSE(other.is_gone(0));
}

TEST(ProgressPage, a_mirroring_page_waits_for_the_front) {
  const ProgressPage page = ProgressPage::create(3, Kind::kMirror);
  EXPECT_EQ(ProgressPage::attach(duplicate(page.fd())).kind(), Kind::kMirror);
  const ProgressPage front = ProgressPage::create(3);
  front.settle(1, 0, 2);
  page.set_front_heard(now_us());
  std::thread mirror([&] {
    while (page.claim_word(1) == 0) std::this_thread::yield();
    front.adopt_claim(1, page.claim_word(1));
    page.adopt_verdict(front.verdict_word());
  });
  EXPECT_EQ(page.settle(1, 1, 0), (Culprit{0, 2}));
  mirror.join();
}

TEST(ProgressPage, a_mirroring_page_takes_its_own_word_when_none_comes_from_the_front) {
  const ProgressPage page = ProgressPage::create(3, Kind::kMirror);
  const int64_t start_us = now_us();
  EXPECT_EQ(page.settle(1, 1, 0), (Culprit{1, 0}));  // no front
  EXPECT_LT(now_us() - start_us, 40'000);
  page.set_front_heard(now_us());
  EXPECT_EQ(page.settle(1, 1, 0), (Culprit{1, 0}));  // a front that says nothing
  EXPECT_GE(now_us() - start_us, ProgressPage::kSettleUs);
  EXPECT_EQ(page.verdict(1), std::nullopt);  // the mirror alone writes it
}

TEST(ProgressPage, words_that_name_no_rank_are_ignored) {
  const ProgressPage page = ProgressPage::create(3);
  for (const uint64_t word : {uint64_t{0}, uint64_t{1} << 32, (uint64_t{1} << 32) + 4, ~uint64_t{0}}) {
    page.adopt_claim(1, word);
    page.adopt_verdict(word);
    page.adopt_verdict(word | 1 << 20);
  }
  EXPECT_EQ(page.verdict_word(), 0u);
}

}  // namespace
}  // namespace coprime
