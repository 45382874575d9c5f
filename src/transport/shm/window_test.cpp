#include "transport/shm/window.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/clock.h"
#include "base/hash.h"

namespace coprime {
namespace {

TEST(Window, a_publication_is_seen_with_its_bytes) {
  const auto region = std::make_shared<const ShmRegion>(ShmRegion::create(2, 4096));
  Window a(region, 0), b(region, 1);
  EXPECT_FALSE(b.seen(0, 1));
  a.slot(1)[5] = std::byte{9};
  a.header(1) = {.bytes = 6, .tag = 3, .epoch = 2};
  a.publish(1);
  ASSERT_TRUE(b.seen(0, 1));
  EXPECT_FALSE(b.seen(0, 2));
  EXPECT_EQ(b.peer_slot(0, 1)[5], std::byte{9});
  EXPECT_EQ(b.peer_header(0, 1).bytes, 6u);
}

TEST(Window, a_sleep_ends_at_its_time) {
  const auto region = std::make_shared<const ShmRegion>(ShmRegion::create(2, 4096));
  Window window(region, 0);
  window.publish(1);
  const int64_t start_us = now_us();
  window.sleep(1, 20'000);
  EXPECT_GE(now_us() - start_us, 19'000);
}

TEST(Window, nobody_sleeps_for_what_is_there) {
  const auto region = std::make_shared<const ShmRegion>(ShmRegion::create(2, 4096));
  Window a(region, 0), b(region, 1);
  a.publish(1);
  b.publish(1);
  const int64_t start_us = now_us();
  a.sleep(1, 10'000'000);
  EXPECT_LT(now_us() - start_us, 5'000'000);
}

TEST(Window, a_ring_wakes_all_sleepers) {
  const auto region = std::make_shared<const ShmRegion>(ShmRegion::create(3, 4096));
  std::atomic<int> awake{0};
  std::vector<std::thread> sleepers;
  for (int rank = 0; rank < 2; ++rank) {
    sleepers.emplace_back([&, rank] {
      Window window(region, rank);
      window.publish(1);
      window.sleep(1, 20'000'000);
      ++awake;
    });
  }
  Window window(region, 2);
  const int64_t start_us = now_us();
  while (awake < 2 && now_us() - start_us < 10'000'000) window.ring();
  EXPECT_EQ(awake, 2);
  for (std::thread& sleeper : sleepers) sleeper.join();
}

// Every wait sleeps, for longer than the test may take: one lost wake-up and it is over.
void sleep_through(int ranks, uint64_t gates) {
  const auto region = std::make_shared<const ShmRegion>(ShmRegion::create(ranks, 64));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Window window(region, rank);
      uint64_t random = static_cast<uint64_t>(rank) + 1;
      for (uint64_t s = 1; s <= gates; ++s) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        for (uint64_t spin = random >> 54; spin > 0; --spin) std::atomic_signal_fence(std::memory_order_seq_cst);
        *reinterpret_cast<uint64_t*>(window.slot(s).data()) = s * 100 + static_cast<uint64_t>(rank);
        window.publish(s);
        for (int peer = 0; peer < ranks; ++peer) {
          while (!window.seen(peer, s)) {
            const int64_t start_us = now_us();
            window.sleep(s, 60'000'000);
            ASSERT_LT(now_us() - start_us, 50'000'000) << "rank " << rank << " slept through gate " << s;
          }
          ASSERT_EQ(*reinterpret_cast<const uint64_t*>(window.peer_slot(peer, s)),
                    s * 100 + static_cast<uint64_t>(peer));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Window, no_wake_up_is_lost) {
  sleep_through(2, 3000);
  sleep_through(5, 1000);
}

TEST(WindowSoak, no_wake_up_is_lost) {
  sleep_through(2, 50'000);
  sleep_through(3, 30'000);
  sleep_through(8, 10'000);
}

}  // namespace
}  // namespace coprime
