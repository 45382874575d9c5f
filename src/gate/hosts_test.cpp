// Worlds whose ranks have no progress page in common: each is a host of its own, and mirrors keep the pages alike.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

#include "base/clock.h"
#include "base/error.h"
#include "gate/testing.h"
#include "transport/progress_mirror.h"

namespace coprime {
namespace {

using testing::Link;
using testing::run_threads;
using testing::TestWorld;

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

void pass_gate(Exchange& exchange, int entry = 0) {
  const std::vector<size_t> incoming(static_cast<size_t>(exchange.ranks()), 64);
  exchange.out(64);
  exchange.publish(entry, 64, incoming);
  exchange.wait();
  exchange.release();
}

std::string error_of_gates(Exchange& exchange, int entry = 0) {
  try {
    for (int i = 0; i < 1'000'000; ++i) pass_gate(exchange, entry);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kLink);
    return error.what();
  }
  return "no error";
}

// Rank 0 is with the front; ranks 1 and 2 are hosts of their own.
class Hosts {
 public:
  explicit Hosts(const GateSchedule& schedule) : world_(Link::kTcp, 3, schedule) {
    pages_[0] = std::make_shared<const ProgressPage>(ProgressPage::create(3));
    hub_.emplace(pages_[0]);
    for (size_t rank = 1; rank < 3; ++rank) {
      int ends[2];
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
      pages_[rank] = std::make_shared<const ProgressPage>(ProgressPage::create(3, ProgressPage::Kind::kMirror));
      hub_->add(1u << rank, UniqueFd(ends[0]));
      mirrors_[rank] = std::make_unique<ProgressMirror>(pages_[rank], 1u << rank, UniqueFd(ends[1]));
    }
  }

  std::unique_ptr<Exchange> join(int rank, int timeout_ms) const {
    return world_.join(rank, world_.settings(timeout_ms), pages_[static_cast<size_t>(rank)]);
  }
  const ProgressPage& page(int rank) const { return *pages_[static_cast<size_t>(rank)]; }
  void hang_up(int rank) { mirrors_[static_cast<size_t>(rank)].reset(); }

 private:
  TestWorld world_;
  std::array<std::shared_ptr<const ProgressPage>, 3> pages_;
  std::optional<ProgressHub> hub_;
  std::array<std::unique_ptr<ProgressMirror>, 3> mirrors_;
};

const GateSchedule kTwoGates = {{.kind = GateKind::kAttention, .layer = 7, .row_bytes = 64, .max_rows = 1},
                                {.kind = GateKind::kFfn, .layer = 7, .row_bytes = 64, .max_rows = 1}};

TEST(HostsOfOneWorld, a_rank_that_computes_on_another_host_is_seen_to_move) {
  const Hosts hosts(kTwoGates);
  run_threads(3, [&](int rank) {
    const auto exchange = hosts.join(rank, 400);
    pass_gate(*exchange);
    if (rank == 2) {
      for (int i = 0; i < 20; ++i) {  // four times the time-out
        std::this_thread::sleep_for(std::chrono::milliseconds(80));
        hosts.page(rank).advance(rank);
      }
    }
    EXPECT_NO_THROW(pass_gate(*exchange)) << rank;
  });
}

TEST(HostsOfOneWorld, a_rank_that_stands_still_is_named_by_all_with_who_found_it) {
  const Hosts hosts(kTwoGates);
  std::array<std::string, 3> errors;
  run_threads(3, [&](int rank) {
    const auto exchange = hosts.join(rank, rank == 1 ? 300 : 20'000);
    pass_gate(*exchange);
    if (rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1000));
      return;
    }
    errors[static_cast<size_t>(rank)] = error_of_gates(*exchange);
  });
  EXPECT_TRUE(contains(errors[1], "rank 1 waited 300 ms for rank 2")) << errors[1];
  EXPECT_TRUE(contains(errors[0], "rank 1 gave up on rank 2 first")) << errors[0];
}

// Each of two ranks is at another gate, and would blame the other: both name the same one, with the same finder.
TEST(HostsOfOneWorld, ranks_that_would_blame_each_other_name_the_same_one) {
  const Hosts hosts(kTwoGates);
  std::array<std::string, 3> errors;
  run_threads(3, [&](int rank) {
    const auto exchange = hosts.join(rank, 20'000);
    pass_gate(*exchange);
    errors[static_cast<size_t>(rank)] = error_of_gates(*exchange, rank == 1 ? 1 : 0);
    // The verdict reaches the others before this rank's connections close.
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  });
  const std::optional<Culprit> culprit = hosts.page(0).verdict(1);
  ASSERT_TRUE(culprit.has_value());
  for (int rank = 0; rank < 3; ++rank) {
    const std::string& error = errors[static_cast<size_t>(rank)];
    EXPECT_TRUE(contains(error, rank == culprit->origin ? "gate order broke"
                                                        : fmt::format("rank {} gave up on rank {} first",
                                                                      culprit->origin, culprit->blamed)))
        << error;
  }
}

TEST(HostsOfOneWorld, a_host_that_hangs_up_is_named_at_once) {
  Hosts hosts(kTwoGates);
  const int64_t start_us = now_us();
  run_threads(3, [&](int rank) {
    const auto exchange = hosts.join(rank, 20'000);
    pass_gate(*exchange);
    if (rank == 2) {
      hosts.hang_up(2);
      std::this_thread::sleep_for(std::chrono::milliseconds(1000));  // its connections to the ranks stay open
      return;
    }
    const std::string error = error_of_gates(*exchange);
    EXPECT_TRUE(contains(error, "lost rank 2") || contains(error, "gave up on rank 2 first")) << error;
  });
  EXPECT_LT(now_us() - start_us, 5'000'000);
}

}  // namespace
}  // namespace coprime
