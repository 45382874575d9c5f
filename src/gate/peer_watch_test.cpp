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
  w.watch.begin(1, kPeer1);
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
  w.watch.begin(1, kPeer1);
  w.watch.check(kPeer1);
  sleep_ms(60);
  EXPECT_EQ(w.watch.check(kPeer1), std::nullopt);
}

TEST(PeerWatch, a_verdict_of_another_epoch_is_no_matter) {
  Watch w;
  w.page->settle(3, 2, 1);
  w.watch.begin(1, kPeer1);
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

// Ranks 1 and 2 are late for gate 5 of rank 0, and rank 1 only since it waits for rank 2 at gate 4.
TEST(PeerWatch, of_two_that_are_late_the_one_that_waits_for_the_other_is_not_blamed) {
  const auto page = std::make_shared<const ProgressPage>(ProgressPage::create(3));
  const auto blamed = [&](ProgressPage::Waiting one, ProgressPage::Waiting two) {
    page->set_waiting(1, one);
    page->set_waiting(2, two);
    PeerWatch watch(page, 0, 20, 1);
    watch.begin(5, 0b110);
    sleep_ms(30);
    return watch.check(0b110).value().blamed;
  };
  EXPECT_EQ(blamed({4, 0b100}, {}), 2);          // stopped while it computes or sends
  EXPECT_EQ(blamed({4, 0b100}, {4, 0b011}), 2);  // stopped in its wait: rank 0 sent gate 4 long ago
  EXPECT_EQ(blamed({}, {4, 0b010}), 1);
  EXPECT_EQ(blamed({4, 0b100}, {4, 0b010}), 1);  // the link between them is cut: one of both
}

}  // namespace
}  // namespace coprime
