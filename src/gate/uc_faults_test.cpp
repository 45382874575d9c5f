// Whatever a UC device does wrong, gates over it either bring the right bytes or end with a named error in time, on
// both ranks: every fault of the software device, in decode, verify and bulk, with and without authenticated messages.
#include <gtest/gtest.h>

#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "gate/testing.h"

namespace coprime {
namespace {

using testing::Link;
using testing::run_threads;
using testing::TestWorld;
using Kind = SoftUcFault::Kind;

constexpr int kTimeoutMs = 300;
constexpr int kSlackMs = 1500;  // 100 for the error itself, the rest for a busy machine
constexpr int kMaxRows = 40;
// Rows of decode take one message and two. Gates that follow each other are alike, so that no length gives away that
// one message stands in the place of another.
const GateSchedule kSchedule = {{GateKind::kAttention, 0, 1024, kMaxRows},
                                {GateKind::kFfn, 0, 1024, kMaxRows},
                                {GateKind::kAttention, 1, 20'480, kMaxRows},
                                {GateKind::kFfn, 1, 20'480, kMaxRows}};

struct Ending {
  std::string error;  // empty: all gates passed
  int64_t last_gate_us = 0;
  uint64_t gates = 0;
  bool wrong = false;  // a gate returned other bytes than were sent
};

uint32_t word(int rank, uint64_t gate, size_t index) {
  return static_cast<uint32_t>(index * 2654435761u + gate * 1000003u + static_cast<uint64_t>(rank) * 7919u);
}

// Steps of decode, then of verify, of bulk, and of decode again.
Ending run_rank(Exchange& exchange, std::span<const int> steps) {
  Ending ending;
  int64_t begin_us = now_us();
  try {
    for (size_t step = 0; step < steps.size(); ++step) {
      const int rows = steps[step], next = steps[std::min(step + 1, steps.size() - 1)];
      begin_us = now_us();
      exchange.begin_step(rows, next);
      for (int entry = 0; entry < static_cast<int>(kSchedule.size()); ++entry) {
        begin_us = now_us();
        const auto bytes = static_cast<size_t>(rows * kSchedule[static_cast<size_t>(entry)].row_bytes);
        const std::span<std::byte> out = exchange.out(bytes);
        for (size_t i = 0; i < bytes / 4; ++i) {
          const uint32_t value = word(exchange.rank(), ending.gates, i);
          std::memcpy(out.data() + 4 * i, &value, 4);
        }
        const std::array incoming{bytes, bytes};
        exchange.publish(entry, bytes, incoming);
        const auto views = exchange.wait();
        for (int rank = 0; rank < 2; ++rank) {
          for (size_t i = 0; i < bytes / 4; ++i) {
            uint32_t value;
            std::memcpy(&value, views[static_cast<size_t>(rank)].data() + 4 * i, 4);
            if (value != word(rank, ending.gates, i)) ending.wrong = true;
          }
        }
        exchange.release();
        ++ending.gates;
      }
    }
  } catch (const Error& error) {
    ending.error = error.what();
    ending.last_gate_us = now_us() - begin_us;
  }
  return ending;
}

struct Case {
  Link link;
  SoftUcFault fault;
};

std::string kind_name(Kind kind) {
  switch (kind) {
    case Kind::kDropMessage:
      return "drop";
    case Kind::kFlipByte:
      return "flip";
    case Kind::kRepeatMessage:
      return "repeat";
    case Kind::kSwapMessages:
      return "swap";
    case Kind::kDuplicateCompletion:
      return "duplicate_completion";
    case Kind::kLoseCompletion:
      return "lose_completion";
    case Kind::kWrongId:
      return "wrong_id";
    case Kind::kUnknownId:
      return "unknown_id";
    case Kind::kWrongLength:
      return "wrong_length";
    case Kind::kBadStatus:
      return "bad_status";
  }
  return "?";
}

// The places where a fault may strike: within the first window, in its steady state, in the bulk exchange, and later.
constexpr uint64_t kPlaces[] = {1, 2, 17, 40, 70, 150, 300};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Link link : {Link::kUc, Link::kSealedUc}) {
    for (const Kind kind : {Kind::kDropMessage, Kind::kFlipByte, Kind::kRepeatMessage, Kind::kSwapMessages}) {
      // Plain UC leaves flipped bits to the wire's own check sum.
      if (link == Link::kUc && kind == Kind::kFlipByte) continue;
      cases.push_back({link, {.kind = kind}});
    }
    for (const Kind kind : {Kind::kDuplicateCompletion, Kind::kLoseCompletion, Kind::kWrongId, Kind::kUnknownId,
                            Kind::kWrongLength, Kind::kBadStatus}) {
      cases.push_back({link, {.kind = kind, .of = Completion::Kind::kReceive}});
      cases.push_back({link, {.kind = kind, .of = Completion::Kind::kSend}});
    }
  }
  return cases;
}

std::vector<Ending> run_world(Link link, const SoftUcOptions& faulty) {
  const TestWorld world(link, 2, kSchedule, [&](int rank, int) {
    SoftUcOptions options = rank == 1 ? faulty : SoftUcOptions{};
    options.max_message_bytes = 16 * 1024;
    return options;
  });
  std::vector<int> steps(24, 1);
  steps.insert(steps.end(), {4, 4, 20, 40, 40, 1, 1, 1, 4, 1, 1});
  steps.insert(steps.end(), 20, 1);
  std::vector<Ending> endings(2);
  run_threads(2, [&](int rank) {
    const auto exchange = world.join(rank, world.settings(kTimeoutMs));
    endings[static_cast<size_t>(rank)] = run_rank(*exchange, steps);
  });
  return endings;
}

void expect_right_or_named(const std::vector<Ending>& endings, const std::string& what) {
  for (size_t rank = 0; rank < endings.size(); ++rank) {
    const Ending& ending = endings[rank];
    EXPECT_FALSE(ending.wrong) << what << ": rank " << rank << " got other bytes than were sent";
    if (ending.error.empty()) continue;
    EXPECT_EQ(ending.error.find(fmt::format("rank {} ", rank)), 0u) << what << ": " << ending.error;
    EXPECT_NE(ending.error.find("sequence"), std::string::npos) << what << ": " << ending.error;
    EXPECT_LT(ending.last_gate_us, (kTimeoutMs + kSlackMs) * 1000) << what << ": " << ending.error;
  }
}

class UcFault : public ::testing::TestWithParam<Case> {};

TEST_P(UcFault, leaves_the_bytes_right_or_ends_with_a_named_error_in_time) {
  int noticed = 0;
  for (const uint64_t place : kPlaces) {
    SoftUcOptions options;
    options.faults = {GetParam().fault};
    options.faults[0].first = place;
    const std::vector<Ending> endings = run_world(GetParam().link, options);
    expect_right_or_named(endings, fmt::format("fault at {}", place));
    for (const Ending& ending : endings) noticed += !ending.error.empty();
  }
  RecordProperty("ranks_that_ended", noticed);
}

INSTANTIATE_TEST_SUITE_P(All, UcFault, ::testing::ValuesIn(all_cases()), [](const auto& tested) {
  const Case& tried = tested.param;
  const bool of_completion = tried.fault.kind >= Kind::kDuplicateCompletion;
  return fmt::format("{}_{}{}", link_name(tried.link), kind_name(tried.fault.kind),
                     !of_completion                                 ? ""
                     : tried.fault.of == Completion::Kind::kReceive ? "_of_receive"
                                                                    : "_of_send");
});

TEST(UcDevice, whose_completion_queue_lies_about_its_size_ends_with_a_named_error_in_time) {
  for (const size_t holds : {1u, 3u, 16u}) {
    SoftUcOptions options;
    options.completion_queue_holds = holds;
    expect_right_or_named(run_world(Link::kUc, options), fmt::format("a queue of {}", holds));
  }
}

TEST(UcDevice, whose_messages_stall_beyond_the_deadline_ends_with_a_named_error_in_time) {
  SoftUcOptions options;
  options.delay = {.stall_every = 30, .stall_us = 2 * kTimeoutMs * 1000};
  const std::vector<Ending> endings = run_world(Link::kUc, options);
  expect_right_or_named(endings, "stalls");
  EXPECT_FALSE(endings[1].error.empty());
}

TEST(UcDevice, whose_messages_stall_within_the_deadline_brings_every_byte) {
  SoftUcOptions options;
  options.delay = {.base_us = 200, .jitter_us = 300, .stall_every = 40, .stall_us = kTimeoutMs * 1000 / 3};
  const std::vector<Ending> endings = run_world(Link::kUc, options);
  expect_right_or_named(endings, "short stalls");
  for (const Ending& ending : endings) EXPECT_EQ(ending.error, "");
}

}  // namespace
}  // namespace coprime
