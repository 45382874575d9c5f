// Many gates on every kind of link, with random delays around and inside them, steps of decode, verify and prefill in
// random order, announced rightly and wrongly, and every byte checked.
//
// The default is short. COPRIME_SOAK_PERCENT=100000 runs 10^6 gates of two ranks and 10^5 of three and five on every
// link. COPRIME_SOAK_SEED draws other steps and delays, so that a long soak can be shared out among machines.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "base/testing.h"
#include "gate/testing.h"

namespace coprime {
namespace {

using testing::Link;
using testing::link_name;
using testing::run_threads;
using testing::TestWorld;

// All ranks draw the same steps from it; delays are each rank's own.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2862933555777941757u + 3037000493u) {}
  uint64_t below(uint64_t bound) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (state_ >> 33) % bound;
  }

 private:
  uint64_t state_;
};

uint64_t seed() {
  const char* const text = std::getenv("COPRIME_SOAK_SEED");
  return text == nullptr ? 0 : static_cast<uint64_t>(std::atoll(text)) << 16;
}

// Decode mostly, now and then the rows of a verify, of a small batch, of prefill.
int draw_rows(Random& random, int max_rows) {
  switch (random.below(16)) {
    case 0:
    case 1:
      return static_cast<int>(2 + random.below(7));
    case 2:
      return static_cast<int>(9 + random.below(24));
    case 3:
      return static_cast<int>(33 + random.below(static_cast<uint64_t>(max_rows) - 32));
    default:
      return 1;
  }
}

uint32_t word(int rank, uint64_t gate, size_t index) {
  return static_cast<uint32_t>(index * 2654435761u) ^
         static_cast<uint32_t>(gate * 1000003u + static_cast<uint64_t>(rank) * 7919u);
}

void fill(std::span<std::byte> bytes, int rank, uint64_t gate) {
  for (size_t i = 0; i < bytes.size() / 4; ++i) {
    const uint32_t value = word(rank, gate, i);
    std::memcpy(bytes.data() + 4 * i, &value, 4);
  }
}

bool holds(std::span<const std::byte> bytes, int rank, uint64_t gate) {
  for (size_t i = 0; i < bytes.size() / 4; ++i) {
    uint32_t value;
    std::memcpy(&value, bytes.data() + 4 * i, 4);
    if (value != word(rank, gate, i)) return false;
  }
  return true;
}

class Dawdler {
 public:
  explicit Dawdler(uint64_t seed) : random_(seed) {}
  void operator()() {
    if (random_.below(4096) == 0) std::this_thread::sleep_for(std::chrono::microseconds(random_.below(1000)));
    for (uint64_t spin = random_.below(256); spin > 0; --spin) cpu_relax();
  }

 private:
  Random random_;
};

constexpr int kMaxRows = 80;
// Rows of decode are shorter and longer than what one message of a capped link holds, and not the same at every gate.
const GateSchedule kSchedule = {{GateKind::kEmbedding, -1, 1024, kMaxRows},
                                {GateKind::kAttention, 0, 1024, kMaxRows},
                                {GateKind::kFfn, 0, 20'480, kMaxRows},
                                {GateKind::kAttention, 1, 64, kMaxRows},
                                {GateKind::kFfn, 1, 4096, kMaxRows}};

void run_rank(Exchange& exchange, int64_t gates) {
  const int ranks = exchange.ranks();
  Random steps(seed() + 7), hints(seed() + 11);
  Dawdler dawdle(seed() + static_cast<uint64_t>(exchange.rank()) + 1);
  std::vector<size_t> incoming(static_cast<size_t>(ranks));
  uint64_t gate = 0;
  for (int rows = draw_rows(steps, kMaxRows), next = 0; static_cast<int64_t>(gate) < gates; rows = next) {
    next = draw_rows(steps, kMaxRows);
    const int expected_next = hints.below(8) == 0 ? draw_rows(hints, kMaxRows) : next;
    exchange.begin_step(rows, expected_next);
    for (int entry = 0; entry < static_cast<int>(kSchedule.size()); ++entry) {
      ++gate;
      const auto row_bytes = static_cast<size_t>(kSchedule[static_cast<size_t>(entry)].row_bytes);
      // Each rank sends its own length now and then, as the gathers of exact mode do.
      const auto bytes_of = [&](int rank) {
        const size_t bytes = static_cast<size_t>(rows) * row_bytes;
        return gate % 7 == 0 ? bytes / static_cast<size_t>(rank + 1) / 4 * 4 : bytes;
      };
      const size_t own = bytes_of(exchange.rank());
      for (int rank = 0; rank < ranks; ++rank) incoming[static_cast<size_t>(rank)] = bytes_of(rank);
      dawdle();
      fill(exchange.out(own).first(own), exchange.rank(), gate);
      dawdle();
      exchange.publish(entry, own, incoming);
      dawdle();
      const auto views = exchange.wait();
      dawdle();
      for (int rank = 0; rank < ranks; ++rank) {
        const auto view = views[static_cast<size_t>(rank)];
        ASSERT_EQ(view.size(), bytes_of(rank)) << "gate " << gate;
        ASSERT_TRUE(holds(view, rank, gate)) << "gate " << gate << " of rank " << rank << ", " << rows << " rows";
      }
      exchange.release();
    }
  }
}

class GateSoak : public ::testing::TestWithParam<Link> {};

TEST_P(GateSoak, every_byte_of_every_gate_is_right) {
  for (const auto& [ranks, gates] : {std::pair{2, 1'000}, std::pair{3, 100}, std::pair{5, 100}}) {
    const TestWorld world(GetParam(), ranks, kSchedule);
    run_threads(ranks, [&, count = gates * testing::soak_percent() / 100](int rank) {
      const auto exchange = world.join(rank);
      run_rank(*exchange, count);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(All, GateSoak,
                         ::testing::Values(Link::kShm, Link::kTcp, Link::kMixed, Link::kUc, Link::kApple, Link::kSealed,
                                           Link::kSealedUc, Link::kUcx),
                         [](const auto& tested) { return std::string(link_name(tested.param)); });

}  // namespace
}  // namespace coprime
