#include "gate/peer_watch.h"

#include <gtest/gtest.h>

#include <thread>

namespace coprime {
namespace {

constexpr uint32_t kPeer1 = 1u << 1;

struct Watch {
  std::shared_ptr<const ProgressPage> page = std::make_shared<const ProgressPage>(ProgressPage::create(3));
  PeerWatch watch{page, 0, 10'000, 4};
};

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// Its last bytes may still be on the way when it is seen to be gone.
TEST(PeerWatch, a_peer_that_is_gone_is_lost_a_little_later) {
  Watch w;
  w.page->mark_gone(1);
  w.page->mark_gone(2);
  w.watch.begin(kPeer1);
  EXPECT_EQ(w.watch.check(kPeer1), std::nullopt);
  sleep_ms(60);
  const std::optional<Verdict> verdict = w.watch.check(kPeer1);
  ASSERT_TRUE(verdict.has_value());
  EXPECT_EQ(verdict->blamed, 1);
  EXPECT_EQ(verdict->what, "lost rank 1");
}

TEST(PeerWatch, a_peer_that_is_gone_and_not_awaited_is_no_matter) {
  Watch w;
  w.page->mark_gone(2);
  w.watch.begin(kPeer1);
  w.watch.check(kPeer1);
  sleep_ms(60);
  EXPECT_EQ(w.watch.check(kPeer1), std::nullopt);
}

TEST(PeerWatch, a_verdict_of_another_epoch_is_no_matter) {
  Watch w;
  w.page->settle(3, 2, 1);
  w.watch.begin(kPeer1);
  EXPECT_EQ(w.watch.check(kPeer1), std::nullopt);
  w.page->settle(4, 2, 1);
  EXPECT_EQ(w.watch.check(kPeer1).value().why.find("rank 2 gave up on rank 1 first"), 0u);
}

TEST(PeerWatch, who_settles_second_reports_what_the_first_found) {
  Watch w;
  PeerWatch other(w.page, 2, 10'000, 4);
  const Verdict own = {1, "waited", "own"}, late = {0, "waited", "late"};
  EXPECT_EQ(w.watch.settle(own).why, "own");
  const Verdict told = other.settle(late);
  EXPECT_EQ(told.blamed, 1);
  EXPECT_EQ(told.why.find("rank 0 gave up on rank 1 first"), 0u) << told.why;
}

TEST(PeerWatch, a_rank_that_stops_for_its_own_reason_is_told_apart) {
  Watch w;
  w.page->settle(4, 2, 2);
  EXPECT_EQ(w.watch.others_verdict().value().why, "rank 2 gave up for a reason of its own: see what it reports");
}

}  // namespace
}  // namespace coprime
