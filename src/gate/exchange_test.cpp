#include <gtest/gtest.h>

#include <cstring>

#include "gate/testing.h"

namespace coprime {
namespace {

using testing::Link;
using testing::link_name;
using testing::lone_exchange;
using testing::one_gate;
using testing::run_processes;
using testing::run_threads;
using testing::TestWorld;

// The bytes that a rank publishes at a sequence: words, so that a check costs little.
void fill(std::span<std::byte> bytes, int rank, uint64_t sequence) {
  for (size_t i = 0; i < bytes.size() / 4; ++i) {
    const uint32_t word = static_cast<uint32_t>(i * 2654435761u) ^
                          static_cast<uint32_t>(sequence * 1000003u + static_cast<uint64_t>(rank) * 7919u);
    std::memcpy(bytes.data() + 4 * i, &word, 4);
  }
}

bool holds(std::span<const std::byte> view, size_t bytes, int rank, uint64_t sequence,
           std::vector<std::byte>& scratch) {
  scratch.resize(bytes);
  fill(scratch, rank, sequence);
  return view.size() == bytes && (bytes == 0 || std::memcmp(view.data(), scratch.data(), bytes) == 0);
}

// Gates of equal and of unequal contributions; the number of those that are wrong.
int run_gates(Exchange& exchange, std::span<const size_t> sizes) {
  int wrong = 0;
  uint64_t sequence = 0;
  std::vector<std::byte> scratch;
  for (const size_t bytes : sizes) {
    for (const bool equal : {true, false}) {
      ++sequence;
      const auto bytes_of = [&](int rank) { return equal ? bytes : bytes / static_cast<size_t>(rank + 1) / 4 * 4; };
      const size_t own = bytes_of(exchange.rank());
      fill(exchange.out(own).first(own), exchange.rank(), sequence);
      std::vector<size_t> incoming;
      for (int rank = 0; rank < exchange.ranks(); ++rank) incoming.push_back(bytes_of(rank));
      exchange.publish(0, own, incoming);
      const auto views = exchange.wait();
      for (int rank = 0; rank < exchange.ranks(); ++rank) {
        wrong += holds(views[static_cast<size_t>(rank)], bytes_of(rank), rank, sequence, scratch) ? 0 : 1;
      }
      exchange.release();
    }
  }
  return wrong;
}

const std::vector<size_t> kSizes = {4, 64, 4096, 16'384, 0, 24'576, 100'000, 4};
const std::vector<size_t> kLargeSizes = {4, 4 << 20, 0, 1 << 20, 4};

struct Case {
  Link link;
  int ranks;
};

class Exchanges : public ::testing::TestWithParam<Case> {};

TEST_P(Exchanges, every_thread_sees_every_contribution_in_rank_order) {
  const auto [link, ranks] = GetParam();
  const TestWorld world(link, ranks, 4 << 20);
  std::atomic<int> wrong{0};
  run_threads(ranks, [&](int rank) { wrong += run_gates(*world.join(rank), kSizes); });
  EXPECT_EQ(wrong, 0);
}

TEST_P(Exchanges, every_process_sees_every_contribution_in_rank_order) {
  const auto [link, ranks] = GetParam();
  const TestWorld world(link, ranks, 4 << 20);
  const auto statuses = run_processes(ranks, [&](int rank) { return run_gates(*world.join(rank), kSizes); });
  EXPECT_EQ(statuses, std::vector<int>(static_cast<size_t>(ranks)));
}

TEST_P(Exchanges, scattered_parts_reach_their_ranks_alone) {
  const auto [link, ranks] = GetParam();
  const TestWorld world(link, ranks, 1 << 20);
  run_threads(ranks, [&](int rank) {
    const auto exchange = world.join(rank);
    std::vector<std::byte> scratch;
    // Rank r sends rank p a part of 4 (r + 2 p) bytes, which is empty for r = p = 0.
    for (uint64_t sequence = 1; sequence <= 20; ++sequence) {
      const size_t unit = sequence % 5 == 0 ? 2048 : 4;
      const auto bytes_of = [&](int from, int to) { return unit * static_cast<size_t>(from + 2 * to); };
      std::vector<size_t> ends;
      const std::span<std::byte> slot = exchange->out(1 << 20);
      size_t end = 0;
      for (int to = 0; to < ranks; ++to) {
        fill(slot.subspan(end, bytes_of(rank, to)), 100 * rank + to, sequence);
        end += bytes_of(rank, to);
        ends.push_back(end);
      }
      std::vector<size_t> incoming;
      for (int from = 0; from < ranks; ++from) incoming.push_back(bytes_of(from, rank));
      exchange->scatter(0, ends, incoming);
      const auto views = exchange->wait();
      for (int from = 0; from < ranks; ++from) {
        EXPECT_TRUE(
            holds(views[static_cast<size_t>(from)], bytes_of(from, rank), 100 * from + rank, sequence, scratch));
      }
      exchange->release();
    }
  });
}

// What the owners' sums rely on: the next slot is written while the views are read.
TEST_P(Exchanges, the_next_slot_may_be_written_before_the_views_are_released) {
  const auto [link, ranks] = GetParam();
  const TestWorld world(link, ranks, 8192);
  run_threads(ranks, [&](int rank) {
    const auto exchange = world.join(rank);
    std::vector<std::byte> scratch;
    fill(exchange->out(8192), rank, 1);
    for (uint64_t sequence = 1; sequence <= 200; ++sequence) {
      exchange->publish(0, 8192, std::vector<size_t>(static_cast<size_t>(ranks), 8192));
      const auto views = exchange->wait();
      fill(exchange->out(8192), rank, sequence + 1);
      for (int peer = 0; peer < ranks; ++peer) {
        ASSERT_TRUE(holds(views[static_cast<size_t>(peer)], 8192, peer, sequence, scratch)) << sequence;
      }
      exchange->release();
    }
  });
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Link link : {Link::kShm, Link::kTcp, Link::kMixed}) {
    for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 16}) cases.push_back({link, ranks});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, Exchanges, ::testing::ValuesIn(all_cases()), [](const auto& tested) {
  return fmt::format("{}_{}", link_name(tested.param.link), tested.param.ranks);
});

TEST(Exchange, contributions_of_megabytes_arrive_whole) {
  for (const Link link : {Link::kShm, Link::kTcp, Link::kMixed}) {
    for (const int ranks : {2, 3, 8}) {
      const TestWorld world(link, ranks, 4 << 20);
      std::atomic<int> wrong{0};
      run_threads(ranks, [&](int rank) { wrong += run_gates(*world.join(rank), kLargeSizes); });
      EXPECT_EQ(wrong, 0) << link_name(link) << ranks;
    }
  }
}

const std::vector<size_t> kAlone = {0};

TEST(LoneExchange, returns_what_was_published) {
  const auto exchange = lone_exchange(one_gate(4 << 20));
  EXPECT_EQ(run_gates(*exchange, kLargeSizes), 0);
  EXPECT_STREQ(exchange->link(0), "none");
}

TEST(LoneExchange, slots_are_aligned_to_64) {
  const auto exchange = lone_exchange(one_gate(100));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(exchange->out(100).data()) % 64, 0u);
    exchange->publish(0, 100, kAlone);
    exchange->wait();
    exchange->release();
  }
}

TEST(Exchange, the_policy_of_ranks_that_share_cores_and_of_those_that_do_not_give_the_same) {
  for (const Link link : {Link::kShm, Link::kTcp, Link::kMixed}) {
    for (const WaitPolicy policy : {WaitPolicy{0, 0}, WaitPolicy{0, 50}, WaitPolicy{2000, 0}, WaitPolicy{1, 1}}) {
      const TestWorld world(link, 3, 4096);
      ExchangeSettings settings = world.settings();
      settings.wait = policy;
      std::atomic<int> wrong{0};
      run_threads(3, [&](int rank) {
        const std::vector<size_t> sizes(100, 4096);
        wrong += run_gates(*world.join(rank, settings), sizes);
      });
      EXPECT_EQ(wrong, 0) << link_name(link) << policy.spin_us << " " << policy.yield_us;
    }
  }
}

TEST(ExchangeDeathTest, calls_out_of_order_and_contributions_too_large_are_broken_invariants) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto exchange = lone_exchange(one_gate(64));
  EXPECT_DEATH(exchange->out(65), "65 bytes in a slot of 64");
  EXPECT_DEATH(exchange->publish(0, 65, kAlone), "65 bytes in a slot of 64");
  EXPECT_DEATH(exchange->wait(), "wait\\(\\) without publish\\(\\)");
  EXPECT_DEATH(exchange->release(), "release\\(\\) without wait\\(\\)");
  exchange->publish(0, 4, kAlone);
  EXPECT_DEATH(exchange->out(4), "between publish\\(\\) and wait\\(\\)");
  EXPECT_DEATH(exchange->publish(0, 4, kAlone), "before the last one is released");
}

}  // namespace
}  // namespace coprime
