#include <gtest/gtest.h>

#include "gate/peer_link.h"
#include "gate/window_plan.h"
#include "tensor/buffer.h"
#include "transport/soft_uc/testing.h"

namespace coprime {
namespace {

const GateSchedule kSchedule = {{GateKind::kFfn, 0, 16 * 1024, 80}};

// Bulk, decode, and bulk again: barriers, windows that are drained, more messages than one poll takes.
int rows_of(uint64_t sequence) { return sequence % 5 == 0 ? 80 : 1; }

// One rank's link, whose queue pair the test can look into.
struct Side {
  explicit Side(UniqueFd wire, UniqueFd side_channel) {
    auto made =
        connect_soft_uc(std::make_shared<SoftUcDevice>(SoftUcOptions{.max_message_bytes = 16 * 1024}), std::move(wire));
    pair = made.get();
    link = make_window_link(std::move(made), SideChannel(std::move(side_channel)), kSchedule,
                            {memory.data(), memory.size()});
  }
  void begin_gate(uint64_t sequence) {
    const int rows = rows_of(sequence);
    const auto bytes = static_cast<size_t>(rows * kSchedule[0].row_bytes);
    link->begin_step(rows, rows_of(sequence + 1));
    link->start({.sequence = sequence, .out = std::span(memory.data(), bytes), .incoming = bytes});
  }

  Buffer memory{2 * largest_slot_bytes(kSchedule)};
  SoftUcQueuePair* pair = nullptr;
  std::unique_ptr<PeerLink> link;
};

// A rank sleeps on descriptors, which tell of bytes and not of completions.
TEST(WindowLink, leaves_no_completion_behind_that_a_rank_could_sleep_on) {
  auto [a_wire, b_wire] = testing::stream_pair();
  auto [a_side, b_side] = testing::stream_pair();
  Side a(std::move(a_wire), std::move(a_side)), b(std::move(b_wire), std::move(b_side));
  int looks = 0;
  for (uint64_t sequence = 1; sequence <= 40; ++sequence) {
    a.begin_gate(sequence);
    b.begin_gate(sequence);
    for (bool a_done = false, b_done = false; !(a_done && b_done); ++looks) {
      ASSERT_LT(looks, 100'000) << a.link->failure() << b.link->failure();
      for (const auto& [side, done] : {std::pair{&a, &a_done}, {&b, &b_done}}) {
        if (*done || (*done = side->link->done())) continue;
        Completion left;
        ASSERT_EQ(side->pair->poll({&left, 1}), 0) << "gate " << sequence;
      }
    }
    a.link->released();
    b.link->released();
  }
}

}  // namespace
}  // namespace coprime
