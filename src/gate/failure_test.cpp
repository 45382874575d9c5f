// Peers that never come, stop, die, close or disagree: every other rank gets a named error within the deadline, and
// keeps it.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "gate/peer_link.h"
#include "gate/testing.h"

namespace coprime {
namespace {

using testing::Link;
using testing::link_name;
using testing::Processes;
using testing::run_threads;
using testing::TestWorld;

constexpr int kTimeoutMs = 300;

std::vector<size_t> from_all(const Exchange& exchange, size_t bytes) {
  return std::vector<size_t>(static_cast<size_t>(exchange.ranks()), bytes);
}

void pass_gate(Exchange& exchange, int entry = 0, size_t bytes = 64) {
  exchange.out(bytes);
  exchange.publish(entry, bytes, from_all(exchange, bytes));
  exchange.wait();
  exchange.release();
}

struct Outcome {
  std::string text;  // of the first error
  std::string again;
  ErrorKind kind = ErrorKind::kInternal;
  int64_t after_us = 0;
};

// Passes gates until one fails, then tries once more.
Outcome run_until_error(Exchange& exchange, int gates = 1'000'000, size_t bytes = 64) {
  Outcome outcome;
  int64_t start_us = now_us();
  try {
    for (int i = 0; i < gates; ++i) {
      start_us = now_us();
      pass_gate(exchange, 0, bytes);
    }
  } catch (const Error& error) {
    outcome.text = error.what();
    outcome.kind = error.kind();
    outcome.after_us = now_us() - start_us;
    try {
      pass_gate(exchange);
    } catch (const Error& second) {
      outcome.again = second.what();
    }
  }
  return outcome;
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

class Failures : public ::testing::TestWithParam<Link> {
 protected:
  Link link() const { return GetParam(); }

  void expect_blames(const Outcome& outcome, int rank, int blamed) {
    EXPECT_EQ(outcome.kind, ErrorKind::kLink);
    EXPECT_EQ(outcome.text.find(fmt::format("rank {} ", rank)), 0u) << outcome.text;
    EXPECT_TRUE(contains(outcome.text, fmt::format(" rank {}", blamed))) << outcome.text;
    EXPECT_TRUE(contains(outcome.text, " at layer 3 gate FFN (sequence ")) << outcome.text;
    const bool shared = link() == Link::kShm || (link() == Link::kMixed && rank < 2 && blamed < 2);
    const char* const name = shared ? "shm" : link() == Link::kUcx ? "ucx" : "tcp";
    EXPECT_TRUE(contains(outcome.text, fmt::format(" over {}: ", name))) << outcome.text;
    EXPECT_EQ(outcome.again, outcome.text);
    EXPECT_LT(outcome.after_us, (kTimeoutMs + 1500) * 1000) << outcome.text;
  }
};

TEST_P(Failures, a_peer_that_never_comes_is_named_by_every_other_rank) {
  const TestWorld world(link(), 3, 4096);
  run_threads(3, [&](int rank) {
    const auto exchange = world.join(rank, world.settings(kTimeoutMs));
    for (int i = 0; i < 5; ++i) pass_gate(*exchange);
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(kTimeoutMs * 3));
      return;
    }
    const Outcome outcome = run_until_error(*exchange);
    expect_blames(outcome, rank, 1);
    EXPECT_TRUE(contains(outcome.text, "(sequence 6)")) << outcome.text;
    EXPECT_GE(outcome.after_us, kTimeoutMs * 900);
    EXPECT_TRUE(contains(outcome.text, fmt::format("rank {} waited {} ms for rank 1 at", rank, kTimeoutMs)) ||
                contains(outcome.text, "gave up on rank 1"))
        << outcome.text;
  });
}

// Where a rank is when it dies or stops.
enum class Spot { kRunning, kIdle, kWriting, kPublished, kWaiting, kReading, kInBulk };
constexpr Spot kSpots[] = {Spot::kRunning, Spot::kIdle,    Spot::kWriting, Spot::kPublished,
                           Spot::kWaiting, Spot::kReading, Spot::kInBulk};
constexpr size_t kBulkBytes = 8 << 20;

// Rank 2, a process, is hit by the signal at the spot; the others are threads here.
void hit_process(Link link, Spot spot, int signal, const std::function<void(const Outcome&, int)>& expect) {
  const TestWorld world(link, 3, kBulkBytes);
  struct Shared {
    std::atomic<int> gates;
    std::atomic<bool> there;
  };
  auto* shared =
      static_cast<Shared*>(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  Processes processes;
  processes.start([&] {
    const auto exchange = world.join(2, world.settings(20'000));
    const auto linger = [&](Spot here) {
      if (spot != here || shared->gates < 100) return;
      shared->there = true;
      if (here != Spot::kWaiting) ::pause();
    };
    while (true) {
      linger(Spot::kIdle);
      const size_t bytes = spot == Spot::kInBulk && shared->gates >= 100 ? kBulkBytes : 64;
      exchange->out(bytes);
      linger(Spot::kWriting);
      exchange->publish(0, bytes, from_all(*exchange, bytes));
      if (bytes == kBulkBytes) linger(Spot::kInBulk);
      linger(Spot::kPublished);
      linger(Spot::kWaiting);
      exchange->wait();
      linger(Spot::kReading);
      exchange->release();
      ++shared->gates;
      if (spot == Spot::kRunning && shared->gates == 100) shared->there = true;
    }
    return 0;
  });
  std::atomic<bool> hit = false;
  std::thread killer([&] {
    while (!shared->there) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (spot == Spot::kWaiting) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    ::kill(processes.id(0), signal);
    hit = true;
  });
  run_threads(2, [&](int rank) {
    const auto exchange = world.join(rank, world.settings(kTimeoutMs));
    for (int i = 0; i < 100; ++i) pass_gate(*exchange);
    if (spot == Spot::kWaiting) {  // the victim waits for these
      while (!hit) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    expect(run_until_error(*exchange, 1'000'000, spot == Spot::kInBulk ? kBulkBytes : 64), rank);
  });
  killer.join();
  ::munmap(shared, sizeof(Shared));
}

TEST_P(Failures, a_killed_peer_is_named_by_every_other_rank_wherever_it_was) {
  for (const Spot spot : kSpots) {
    SCOPED_TRACE(static_cast<int>(spot));
    hit_process(link(), spot, SIGKILL, [&](const Outcome& outcome, int rank) { expect_blames(outcome, rank, 2); });
  }
}

TEST_P(Failures, a_stopped_peer_is_named_by_every_other_rank_wherever_it_was) {
  for (const Spot spot : kSpots) {
    SCOPED_TRACE(static_cast<int>(spot));
    hit_process(link(), spot, SIGSTOP, [&](const Outcome& outcome, int rank) { expect_blames(outcome, rank, 2); });
  }
}

TEST_P(Failures, a_slow_peer_whose_counter_moves_is_no_error) {
  const TestWorld world(link(), 3, 4096);
  run_threads(3, [&](int rank) {
    const auto exchange = world.join(rank, world.settings(kTimeoutMs));
    pass_gate(*exchange);
    if (rank == 1) {  // computes for four times the time-out
      for (int i = 0; i < 40; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(kTimeoutMs / 10));
        world.progress().advance(rank);
      }
    }
    EXPECT_NO_THROW(pass_gate(*exchange));
  });
}

// The deadline counts from the last move, not from the wait's begin.
TEST_P(Failures, a_slow_peer_that_stops_moving_is_named_a_timeout_later) {
  const TestWorld world(link(), 2, 4096);
  run_threads(2, [&](int rank) {
    const auto exchange = world.join(rank, world.settings(kTimeoutMs));
    if (rank == 1) {
      for (int i = 0; i < 20; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(kTimeoutMs / 10));
        world.progress().advance(rank);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(kTimeoutMs * 4));
      return;
    }
    const Outcome outcome = run_until_error(*exchange);
    EXPECT_TRUE(contains(outcome.text, "for rank 1 at")) << outcome.text;
    EXPECT_GT(outcome.after_us, kTimeoutMs * 2900);
    EXPECT_LT(outcome.after_us, kTimeoutMs * 5000);
  });
}

TEST_P(Failures, a_rank_that_gives_up_tells_the_others_whom_it_blames) {
  const TestWorld world(link(), 4, 4096);
  const int64_t start_us = now_us();
  run_threads(4, [&](int rank) {
    // Rank 0 is impatient, the others would wait for long.
    const auto exchange = world.join(rank, world.settings(rank == 0 ? 1000 : 20'000));
    pass_gate(*exchange);
    if (rank == 2) {
      while (!world.progress().verdict(1)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return;
    }
    const Outcome outcome = run_until_error(*exchange);
    EXPECT_TRUE(contains(outcome.text, "rank 2")) << outcome.text;
    if (rank != 0) {
      EXPECT_TRUE(contains(outcome.text, "gave up on rank 2")) << outcome.text;
    }
  });
  EXPECT_LT(now_us() - start_us, 10'000'000);
}

// As the front says when a rank's process has ended.
TEST_P(Failures, a_peer_that_is_gone_is_named_at_once) {
  const TestWorld world(link(), 3, 4096);
  const int64_t start_us = now_us();
  run_threads(3, [&](int rank) {
    const auto exchange = world.join(rank);
    pass_gate(*exchange);
    if (rank == 1) {
      world.progress().mark_gone(rank);
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      return;
    }
    const Outcome outcome = run_until_error(*exchange);
    EXPECT_TRUE(contains(outcome.text, "lost rank 1") || contains(outcome.text, "gave up on rank 1")) << outcome.text;
  });
  EXPECT_LT(now_us() - start_us, 5'000'000);
}

TEST_P(Failures, ranks_at_different_gates_find_out_at_once) {
  const TestWorld world(link(), 2, {{GateKind::kFfn, 7, 64, 1}, {GateKind::kAttention, 7, 64, 1}});
  run_threads(2, [&](int rank) {
    const auto exchange = world.join(rank);
    pass_gate(*exchange);
    try {
      pass_gate(*exchange, rank);
      FAIL() << "no error";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_TRUE(contains(text, "gate order broke: ") || contains(text, "gave up on")) << text;
      if (rank == 0 && contains(text, "broke")) {
        EXPECT_TRUE(contains(text, "rank 1 is at layer 7 gate ATTN, rank 0 at layer 7 gate FFN")) << text;
      }
    }
  });
}

TEST_P(Failures, ranks_of_different_epochs_find_out_at_once) {
  const TestWorld world(link(), 2, 4096);
  run_threads(2, [&](int rank) {
    ExchangeSettings settings = world.settings();
    settings.epoch = static_cast<uint32_t>(rank) + 5;
    const auto exchange = world.join(rank, settings);
    const Outcome outcome = run_until_error(*exchange);
    EXPECT_TRUE(contains(outcome.text, "epoch") || contains(outcome.text, "gave up on")) << outcome.text;
  });
}

TEST_P(Failures, ranks_of_different_lengths_find_out_at_once) {
  const TestWorld world(link(), 2, 4096);
  run_threads(2, [&](int rank) {
    const auto exchange = world.join(rank);
    pass_gate(*exchange);
    try {
      pass_gate(*exchange, 0, rank == 0 ? 64 : 128);
      FAIL() << "no error";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_TRUE(
          contains(text, rank == 0 ? "rank 1 sent 128 bytes where 64 come" : "rank 0 sent 64 bytes where 128") ||
          contains(text, "gave up on"))
          << text;
    }
  });
}

TEST_P(Failures, a_rank_that_abandons_a_gate_tells_the_others_at_once) {
  const TestWorld world(link(), 3, 4096);
  const int64_t start_us = now_us();
  run_threads(3, [&](int rank) {
    const auto exchange = world.join(rank);
    pass_gate(*exchange);
    if (rank == 1) {
      EXPECT_THROW(exchange->abandon(Error(ErrorKind::kInternal, "a reason of its own")), Error);
      EXPECT_THROW(pass_gate(*exchange), Error);
      return;
    }
    const Outcome outcome = run_until_error(*exchange);
    EXPECT_TRUE(contains(outcome.text, "rank 1")) << outcome.text;
  });
  EXPECT_LT(now_us() - start_us, 5'000'000);
}

INSTANTIATE_TEST_SUITE_P(All, Failures, ::testing::Values(Link::kShm, Link::kTcp, Link::kMixed, Link::kUcx),
                         [](const auto& tested) { return std::string(link_name(tested.param)); });

// A stopped rank in the middle of large messages: both directions are full.
TEST(TcpFailures, a_peer_that_stops_reading_is_named) {
  const TestWorld world(Link::kTcp, 2, 32 << 20);
  run_threads(2, [&](int rank) {
    const auto exchange = world.join(rank, world.settings(kTimeoutMs));
    pass_gate(*exchange);
    if (rank == 1) {
      exchange->out(32 << 20);
      std::this_thread::sleep_for(std::chrono::milliseconds(kTimeoutMs * 3));
      return;
    }
    try {
      pass_gate(*exchange, 0, 32 << 20);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_TRUE(contains(error.what(), "for rank 1")) << error.what();
    }
  });
}

TEST(TcpFailures, a_peer_that_closes_is_named_at_once) {
  const TestWorld world(Link::kTcp, 3, 4096);
  const int64_t start_us = now_us();
  run_threads(3, [&](int rank) {
    const auto exchange = world.join(rank);
    for (int i = 0; i < 3; ++i) pass_gate(*exchange);
    if (rank == 1) return;
    const Outcome outcome = run_until_error(*exchange);
    EXPECT_TRUE(contains(outcome.text, "rank 1 closed the connection") || contains(outcome.text, "gave up on rank 1"))
        << outcome.text;
  });
  EXPECT_LT(now_us() - start_us, 10'000'000);
}

// Rank 0 gives up on rank 2 in the middle of a large message to rank 1, which is slow but alive: rank 1 blames rank 2
// as well.
TEST(TcpFailures, a_peer_that_closed_because_it_gave_up_passes_on_whom_it_blames) {
  constexpr size_t kLarge = 32 << 20;
  const TestWorld world(Link::kTcp, 3, kLarge);
  run_threads(3, [&](int rank) {
    const auto exchange = world.join(rank, world.settings(rank == 0 ? kTimeoutMs : 20'000));
    pass_gate(*exchange);
    if (rank != 0) {
      while (!world.progress().verdict(1)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        if (rank == 1) world.progress().advance(rank);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    if (rank == 2) return;
    try {
      pass_gate(*exchange, 0, kLarge);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_TRUE(contains(error.what(), rank == 0 ? "waited 300 ms for rank 2" : "rank 0 gave up on rank 2"))
          << error.what();
    }
  });
}

// A rank that has passed its last gate and left is no failure for those that are still in it.
TEST(TcpFailures, a_peer_that_leaves_after_the_last_gate_is_no_error) {
  for (int round = 0; round < 50; ++round) {
    const TestWorld world(Link::kTcp, 3, 4096);
    run_threads(3, [&](int rank) {
      const auto exchange = world.join(rank);
      for (int i = 0; i < 3; ++i) EXPECT_NO_THROW(pass_gate(*exchange));
    });
  }
}

TEST(TcpFailures, a_rank_does_not_leave_before_all_is_sent) {
  constexpr size_t kLarge = 32 << 20;
  const TestWorld world(Link::kTcp, 2, kLarge);
  run_threads(2, [&](int rank) {
    const auto exchange = world.join(rank);
    const size_t bytes = rank == 0 ? kLarge : 4;
    exchange->out(bytes);
    exchange->publish(0, bytes, from_all(*exchange, rank == 0 ? 4 : kLarge));
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_NO_THROW(exchange->wait());
  });
}

// The messages towards rank 1 without the third: the next one comes when rank 1 still waits for the third.
SoftUcOptions losing_the_third(int rank, int) {
  SoftUcOptions options{.max_message_bytes = 16 * 1024};
  if (rank == 1) options.faults = {{.kind = SoftUcFault::Kind::kDropMessage, .first = 3}};
  return options;
}

TEST(UcFailures, a_message_in_the_receive_of_a_lost_one_is_named_and_never_taken_for_it) {
  const TestWorld world(Link::kUc, 2, testing::one_gate(64), losing_the_third);
  run_threads(2, [&](int rank) {
    const auto exchange = world.join(rank, world.settings(kTimeoutMs));
    uint64_t gate = 0;
    std::string text;
    try {
      while (++gate <= 10) {
        exchange->begin_step(1, 1);
        std::memset(exchange->out(64).data(), static_cast<int>(16 * rank + gate), 64);
        exchange->publish(0, 64, from_all(*exchange, 64));
        const auto view = exchange->wait()[static_cast<size_t>(1 - rank)];
        EXPECT_EQ(static_cast<uint64_t>(view[0]), 16 * (1 - rank) + gate) << "rank " << rank;
        exchange->release();
      }
    } catch (const Error& error) {
      text = error.what();
    }
    if (rank == 0) return;
    EXPECT_EQ(gate, 3u);
    EXPECT_TRUE(contains(text,
                         "is out of step with this rank: message of seq 4 chunk 0 in the receive of seq 3 chunk 0: "
                         "the link lost or moved a message"))
        << text;
  });
}

TEST(StreamLink, is_for_pairs_that_keep_whole_messages_and_their_tags) {
  const QueuePairLimits tcp{.send_depth = 16, .receive_depth = 16, .carries_tags = true};
  EXPECT_TRUE(suits_stream_link(tcp, 1 << 20));
  for (const auto& change : {+[](QueuePairLimits& limits) { limits.carries_tags = false; },
                             +[](QueuePairLimits& limits) { limits.loses_unposted = true; },
                             +[](QueuePairLimits& limits) { limits.max_message_bytes = 1000; },
                             +[](QueuePairLimits& limits) { limits.max_posted_bytes = 1 << 20; },
                             +[](QueuePairLimits& limits) { limits.frame_bytes = 4096; }}) {
    QueuePairLimits limits = tcp;
    change(limits);
    EXPECT_FALSE(suits_stream_link(limits, 1 << 20));
  }
}

TEST(Schedule, names_its_gates) {
  EXPECT_EQ(gate_text({.kind = GateKind::kAttention, .layer = 12}), "layer 12 gate ATTN");
  EXPECT_EQ(gate_text({.kind = GateKind::kEmbedding, .layer = -1}), "gate EMBED");
}

TEST(Schedule, names_exchanges_of_a_trial_by_their_place) {
  EXPECT_EQ(gate_text({GateKind::kTrial, 3, 4, 1}), "exchange 3 of the trial");
}

TEST(Schedule, a_slot_holds_the_largest_gate) {
  EXPECT_EQ(largest_slot_bytes({}), 0u);
  EXPECT_EQ(largest_slot_bytes(
                {{.row_bytes = 100, .max_rows = 3}, {.row_bytes = 50, .max_rows = 7}, {.row_bytes = 4, .max_rows = 1}}),
            350u);
  EXPECT_THROW(largest_slot_bytes({{.row_bytes = int64_t{1} << 40, .max_rows = 1 << 30}}), Error);
}

}  // namespace
}  // namespace coprime
