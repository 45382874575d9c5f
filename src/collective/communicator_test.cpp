#include "collective/communicator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "base/hash.h"
#include "device/reference/reference_device.h"
#include "gate/testing.h"

namespace coprime {
namespace {

using testing::Link;
using testing::link_name;
using testing::lone_exchange;
using testing::run_processes;
using testing::run_threads;
using testing::TestWorld;

constexpr int kLayers = 2;
constexpr float kEps = 1e-6f;

GateSchedule make_schedule(int64_t columns, int max_rows) {
  GateSchedule schedule = {{GateKind::kEmbedding, -1, columns * 4, max_rows}};
  for (int layer = 0; layer < kLayers; ++layer) {
    schedule.push_back({GateKind::kAttention, layer, columns * 4, max_rows});
    schedule.push_back({GateKind::kFfn, layer, columns * 4, max_rows});
  }
  return schedule;
}

// The contribution of a rank to a gate of a step: any float will do that shows the order of additions.
float element(int step, int entry, int rank, int64_t index) {
  uint64_t bits = static_cast<uint64_t>(index) + 1;
  for (const uint64_t part : {static_cast<uint64_t>(step), static_cast<uint64_t>(entry), static_cast<uint64_t>(rank)}) {
    bits = (bits ^ (part + 0x9e3779b97f4a7c15u)) * 0xbf58476d1ce4e5b9u;
    bits ^= bits >> 29;
  }
  const float mantissa = static_cast<float>(static_cast<int64_t>(bits >> 40)) - 8388608.0f;
  return std::ldexp(mantissa, static_cast<int>(bits % 12) - 26);
}

std::vector<float> norm_weights(int64_t columns) {
  std::vector<float> weights(static_cast<size_t>(columns));
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = 0.5f + static_cast<float>(i % 7) * 0.25f;
  return weights;
}

uint64_t hash_of(std::span<const float> values, uint64_t seed) { return hash_bytes(std::as_bytes(values), seed); }

// Runs one step after another and hashes all residuals and norms.
uint64_t run_steps(Communicator& communicator, int64_t columns, std::span<const int> rows_of_step) {
  const std::vector<float> weights = norm_weights(columns);
  uint64_t hash = 0;
  for (size_t step = 0; step < rows_of_step.size(); ++step) {
    const int rows = rows_of_step[step];
    std::vector<float> residual(static_cast<size_t>(rows * columns)), normed(residual.size());
    communicator.begin_step(rows, rows_of_step[(step + 1) % rows_of_step.size()]);
    for (int entry = 0; entry < 1 + 2 * kLayers; ++entry) {
      const View slot = communicator.slot(entry, rows);
      for (int64_t i = 0; i < rows * columns; ++i)
        slot.data[i] = element(static_cast<int>(step), entry, communicator.rank(), i);
      const bool last = entry == 2 * kLayers;
      communicator.reduce(entry, rows,
                          {.residual = make_view(residual.data(), rows, columns),
                           .norm_weight = last ? nullptr : weights.data(),
                           .eps = kEps,
                           .normed = make_view(normed.data(), rows, columns)});
      hash = hash_of(residual, hash);
      if (!last) hash = hash_of(normed, hash);
    }
  }
  return hash;
}

// The same in plain loops, with the sum in rank order. The norm is the reference device's.
uint64_t expected_hash(int ranks, int64_t columns, std::span<const int> rows_of_step) {
  const auto device = make_reference_device();
  const std::vector<float> weights = norm_weights(columns);
  uint64_t hash = 0;
  for (size_t step = 0; step < rows_of_step.size(); ++step) {
    const int rows = rows_of_step[step];
    std::vector<float> residual(static_cast<size_t>(rows * columns)), normed(residual.size());
    for (int entry = 0; entry < 1 + 2 * kLayers; ++entry) {
      for (int64_t i = 0; i < rows * columns; ++i) {
        float sum = element(static_cast<int>(step), entry, 0, i);
        for (int rank = 1; rank < ranks; ++rank) sum = sum + element(static_cast<int>(step), entry, rank, i);
        residual[static_cast<size_t>(i)] += sum;
      }
      hash = hash_of(residual, hash);
      if (entry == 2 * kLayers) continue;
      device->rms_norm(make_view(residual.data(), rows, columns), weights.data(), kEps,
                       make_view(normed.data(), rows, columns));
      hash = hash_of(normed, hash);
    }
  }
  return hash;
}

struct Case {
  Link link;
  int ranks;
};

class Communicators : public ::testing::TestWithParam<Case> {};

// Rows of decode and of prefill: both ways to sum are met (512 rows of 64 columns are 128 KiB).
constexpr int64_t kColumns = 64;
constexpr int kRowsOfStep[] = {1, 3, 512, 1, 17, 511, 400};

TEST_P(Communicators, all_threads_hold_the_sum_in_rank_order) {
  const auto [link, ranks] = GetParam();
  const GateSchedule schedule = make_schedule(kColumns, 512);
  const TestWorld world(link, ranks, schedule);
  const uint64_t expected = expected_hash(ranks, kColumns, kRowsOfStep);
  run_threads(ranks, [&](int rank) {
    const auto device = make_reference_device();
    HostCommunicator communicator(world.join(rank), *device);
    EXPECT_EQ(run_steps(communicator, kColumns, kRowsOfStep), expected) << "rank " << rank;
    EXPECT_EQ(communicator.statistics().gates, std::size(kRowsOfStep) * schedule.size());
  });
}

TEST_P(Communicators, all_processes_hold_the_sum_in_rank_order) {
  const auto [link, ranks] = GetParam();
  const GateSchedule schedule = make_schedule(kColumns, 512);
  const TestWorld world(link, ranks, schedule);
  const uint64_t expected = expected_hash(ranks, kColumns, kRowsOfStep);
  const auto statuses = run_processes(ranks, [&](int rank) {
    const auto device = make_reference_device();
    HostCommunicator communicator(world.join(rank), *device);
    return run_steps(communicator, kColumns, kRowsOfStep) == expected ? 0 : 1;
  });
  EXPECT_EQ(statuses, std::vector<int>(static_cast<size_t>(ranks)));
}

// Rank r holds r columns of every row (rank 0 none), at places in descending order with gaps.
TEST_P(Communicators, gathers_parts_of_unequal_size) {
  const auto [link, ranks] = GetParam();
  constexpr int kRows = 5;
  const int64_t widest = std::max(ranks - 1, 1), columns = 20 * ranks;
  const GateSchedule schedule = {{GateKind::kFfnInput, 0, widest * 4, kRows},
                                 {GateKind::kFfnOutput, 0, widest * 4, kRows}};
  const TestWorld world(link, ranks, schedule);
  std::vector<GatherPart> parts;
  for (int rank = 0; rank < ranks; ++rank) parts.push_back({20 * int64_t{ranks - 1 - rank}, rank});
  run_threads(ranks, [&](int rank) {
    const auto device = make_reference_device();
    HostCommunicator communicator(world.join(rank), *device);
    communicator.hash_gates(true);
    for (int step = 0; step < 3; ++step) {
      communicator.begin_step(kRows, kRows);
      for (int entry = 0; entry < 2; ++entry) {
        const View slot = communicator.slot(entry, kRows);
        for (int64_t row = 0; row < kRows; ++row) {
          for (int64_t c = 0; c < rank; ++c) slot.row(row)[c] = element(step, entry, rank, row * 100 + c);
        }
        std::vector<float> out(static_cast<size_t>(kRows * (columns + 3)), -1.0f), expected = out;
        communicator.all_gather(entry, kRows, parts, {out.data(), kRows, columns, columns + 3});
        for (int peer = 0; peer < ranks; ++peer) {
          for (int64_t row = 0; row < kRows; ++row) {
            for (int64_t c = 0; c < peer; ++c) {
              expected[static_cast<size_t>(row * (columns + 3) + parts[static_cast<size_t>(peer)].first + c)] =
                  element(step, entry, peer, row * 100 + c);
            }
          }
        }
        ASSERT_EQ(out, expected) << "rank " << rank;
      }
      EXPECT_EQ(communicator.gate_hashes().size(), 2u);
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

INSTANTIATE_TEST_SUITE_P(All, Communicators, ::testing::ValuesIn(all_cases()), [](const auto& tested) {
  return fmt::format("{}_{}", link_name(tested.param.link), tested.param.ranks);
});

TEST(Communicator, a_world_of_one_needs_no_link) {
  const GateSchedule schedule = make_schedule(kColumns, 512);
  const auto device = make_reference_device();
  HostCommunicator communicator(lone_exchange(schedule), *device);
  EXPECT_EQ(run_steps(communicator, kColumns, kRowsOfStep), expected_hash(1, kColumns, kRowsOfStep));
  EXPECT_EQ(communicator.statistics().time_ns, 0);
}

// The sum that owners make of a bulk step is the one that all make when the same rows come a few at a time.
TEST(Communicator, sums_by_owners_have_the_bits_of_sums_at_all) {
  constexpr int kRanks = 3, kRows = 300;
  ASSERT_TRUE(sums_by_owner(kRows, kColumns * 4, kRanks, false));
  ASSERT_FALSE(sums_by_owner(100, kColumns * 4, kRanks, false));
  const GateSchedule schedule = make_schedule(kColumns, kRows);
  for (const Link link : {Link::kShm, Link::kTcp}) {
    const TestWorld world(link, kRanks, schedule);
    run_threads(kRanks, [&](int rank) {
      const auto device = make_reference_device();
      const std::vector<float> weights = norm_weights(kColumns);
      HostCommunicator communicator(world.join(rank), *device);
      const auto step = [&](int first, int rows, std::vector<float>& residual, std::vector<float>& normed) {
        communicator.begin_step(rows, rows);
        for (int entry = 0; entry < 1 + 2 * kLayers; ++entry) {
          const View slot = communicator.slot(entry, rows);
          for (int64_t i = 0; i < rows * kColumns; ++i) slot.data[i] = element(0, entry, rank, first * kColumns + i);
          communicator.reduce(entry, rows,
                              {make_view(residual.data() + first * kColumns, rows, kColumns), weights.data(), kEps,
                               make_view(normed.data() + first * kColumns, rows, kColumns)});
        }
      };
      std::vector<float> bulk(kRows * kColumns), bulk_normed(bulk.size()), few(bulk.size()), few_normed(bulk.size());
      step(0, kRows, bulk, bulk_normed);
      for (int first = 0; first < kRows; first += 100) step(first, 100, few, few_normed);
      EXPECT_EQ(hash_of(bulk, 0), hash_of(few, 0));
      EXPECT_EQ(hash_of(bulk_normed, 0), hash_of(few_normed, 0));
    });
  }
}

TEST(Communicator, the_hashes_of_all_gates_are_equal_on_all_ranks_and_links) {
  constexpr int kRanks = 3;
  const GateSchedule schedule = make_schedule(kColumns, 512);
  std::vector<std::vector<uint64_t>> hashes(2 * kRanks);
  for (const Link link : {Link::kShm, Link::kTcp}) {
    const TestWorld world(link, kRanks, schedule);
    run_threads(kRanks, [&](int rank) {
      const auto device = make_reference_device();
      HostCommunicator communicator(world.join(rank), *device);
      communicator.hash_gates(true);
      run_steps(communicator, kColumns, std::array{1, 512});
      const auto gates = communicator.gate_hashes();
      hashes[static_cast<size_t>(rank + (link == Link::kTcp ? kRanks : 0))] = {gates.begin(), gates.end()};
    });
  }
  EXPECT_EQ(hashes[0].size(), schedule.size());
  for (const auto& other : hashes) EXPECT_EQ(other, hashes[0]);
}

TEST(Communicator, statistics_count_gates_bytes_and_time) {
  const GateSchedule schedule = make_schedule(kColumns, 512);
  const TestWorld world(Link::kShm, 3, schedule);
  run_threads(3, [&](int rank) {
    const auto device = make_reference_device();
    HostCommunicator communicator(world.join(rank), *device);
    const int64_t begin_ns = now_ns();
    run_steps(communicator, kColumns, std::array{2, 300});
    const int64_t all_ns = now_ns() - begin_ns;
    const GateStatistics& statistics = communicator.statistics();
    EXPECT_EQ(statistics.gates, 10u);
    EXPECT_EQ(statistics.bytes, 5u * (2 * 256 + 2 * 100 * 256));
    EXPECT_GT(statistics.time_ns, 0);
    EXPECT_LE(statistics.time_ns, all_ns);
  });
}

class Watcher final : public GateObserver {
 public:
  void gate_asked(const GateEntry&, int entry, uint64_t sequence) override { asked.emplace_back(entry, sequence); }
  void phase_ended(const GateEntry&, const GateMoment& moment) override { moments.push_back(moment); }

  std::vector<std::pair<int, uint64_t>> asked;
  std::vector<GateMoment> moments;
};

TEST(GateObserver, sees_each_gates_phases_one_right_behind_the_other) {
  const GateSchedule schedule = make_schedule(kColumns, 512);
  const TestWorld world(Link::kShm, 3, schedule);
  run_threads(3, [&](int rank) {
    const auto device = make_reference_device();
    HostCommunicator communicator(world.join(rank), *device);
    Watcher watcher;
    communicator.observe(watcher);
    run_steps(communicator, kColumns, std::array{2, 300});  // pushed to all, then summed by owners

    const auto entries = static_cast<int>(schedule.size());
    ASSERT_EQ(watcher.asked.size(), 2 * schedule.size());
    for (int gate = 0; gate < 2 * entries; ++gate) {
      const uint64_t sequence = gate < entries ? gate + 1 : entries + 2 * (gate - entries) + 1;
      EXPECT_EQ(watcher.asked[static_cast<size_t>(gate)], std::pair(gate % entries, sequence));
    }
    ASSERT_EQ(watcher.moments.size(), schedule.size() * (3 + 6));
    int64_t time_ns = 0;
    for (size_t i = 0; i < watcher.moments.size(); ++i) {
      const GateMoment& moment = watcher.moments[i];
      const size_t few = 3 * schedule.size(), in_bulk = i - few;
      EXPECT_EQ(static_cast<size_t>(moment.phase), i % 3);
      EXPECT_EQ(static_cast<size_t>(moment.entry), i < few ? i / 3 : in_bulk / 6);
      EXPECT_EQ(moment.sequence, i / 3 + 1);
      EXPECT_EQ(moment.bytes, i < few ? 2 * 256u : in_bulk % 6 < 3 ? 300 * 256u : 100 * 256u);
      EXPECT_LE(moment.begin_ns, moment.end_ns);
      if (i % 3 != 0) {
        EXPECT_EQ(moment.begin_ns, watcher.moments[i - 1].end_ns);
      }
      time_ns += moment.end_ns - moment.begin_ns;
    }
    EXPECT_EQ(communicator.statistics().time_ns, time_ns);
  });
}

TEST(GateObserver, sees_a_gate_before_its_order_is_checked) {
  const auto device = make_reference_device();
  HostCommunicator communicator(lone_exchange(make_schedule(kColumns, 4)), *device);
  Watcher watcher;
  communicator.observe(watcher);
  communicator.begin_step(1, 1);
  EXPECT_THROW(communicator.slot(3, 1), Error);
  EXPECT_EQ(watcher.asked, (std::vector<std::pair<int, uint64_t>>{{3, 1}}));
}

TEST(SumsByOwner, only_bulk_of_more_than_two_ranks_with_a_row_for_each) {
  EXPECT_FALSE(sums_by_owner(4096, 16384, 1, false));
  EXPECT_FALSE(sums_by_owner(4096, 16384, 2, false));
  EXPECT_TRUE(sums_by_owner(4096, 16384, 3, false));
  EXPECT_FALSE(sums_by_owner(1, 1 << 20, 3, false));
  EXPECT_FALSE(sums_by_owner(8, 1 << 20, 16, false));
  EXPECT_TRUE(sums_by_owner(16, 1 << 20, 16, false));
  EXPECT_FALSE(sums_by_owner(16, 64, 16, false));
}

// Runs `body` on a fresh communicator of one rank; the error's text, which must come again at the next call.
template <class Body>
std::string sticky_error(Body&& body) {
  const GateSchedule schedule = make_schedule(kColumns, 4);
  const auto device = make_reference_device();
  HostCommunicator communicator(lone_exchange(schedule), *device);
  std::string text;
  try {
    body(communicator);
  } catch (const Error& error) {
    text = error.what();
  }
  try {
    communicator.begin_step(1, 1);
    ADD_FAILURE() << "not sticky";
  } catch (const Error& error) {
    EXPECT_EQ(text, error.what());
  }
  return text;
}

void reduce_one(Communicator& communicator, int entry, int rows) {
  std::vector<float> residual(static_cast<size_t>(rows * kColumns));
  communicator.reduce(entry, rows, {.residual = make_view(residual.data(), rows, kColumns)});
}

TEST(Communicator, gates_out_of_order_are_refused) {
  EXPECT_EQ(sticky_error([](Communicator& c) { c.slot(0, 1); }),
            "gate order broke: gate EMBED comes where a new step is next");
  EXPECT_EQ(sticky_error([](Communicator& c) {
              c.begin_step(1, 1);
              c.slot(2, 1);
            }),
            "gate order broke: layer 0 gate FFN comes where gate EMBED is next");
  EXPECT_EQ(sticky_error([](Communicator& c) {
              c.begin_step(1, 1);
              c.slot(0, 1);
              reduce_one(c, 0, 1);
              c.begin_step(1, 1);
            }),
            "gate order broke: a step begins where layer 0 gate ATTN of the last one is still to come");
  EXPECT_EQ(sticky_error([](Communicator& c) {
              c.begin_step(1, 1);
              reduce_one(c, 0, 1);
            }),
            "gate order broke: entry 0 with 1 rows comes after the slot of entry 0 with -1");
  EXPECT_EQ(sticky_error([](Communicator& c) {
              c.begin_step(1, 1);
              c.slot(0, 2);
              reduce_one(c, 0, 1);
            }),
            "gate order broke: entry 0 with 1 rows comes after the slot of entry 0 with 2");
}

TEST(Communicator, ranks_that_disagree_on_the_rows_find_out) {
  const GateSchedule schedule = make_schedule(kColumns, 4);
  for (const Link link : {Link::kShm, Link::kTcp}) {
    const TestWorld world(link, 2, schedule);
    run_threads(2, [&](int rank) {
      const auto device = make_reference_device();
      HostCommunicator communicator(world.join(rank), *device);
      communicator.begin_step(1, 1);
      communicator.slot(0, 1 + rank);
      try {
        reduce_one(communicator, 0, 1 + rank);
        FAIL() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kLink);
        // One of them looks first; the other may have heard of it by then.
        const std::string text = error.what();
        EXPECT_TRUE(text.find(fmt::format(
                        "rank {} stopped at gate EMBED (sequence 1) over {}: rank {} sent {} bytes where {} "
                        "come: all ranks must run the same step",
                        rank, link_name(link), 1 - rank, rank == 0 ? 512 : 256, rank == 0 ? 256 : 512)) == 0 ||
                    text.find("gave up on") != std::string::npos)
            << text;
      }
    });
  }
}

TEST(Communicator, an_error_of_the_exchange_comes_again) {
  const GateSchedule schedule = make_schedule(kColumns, 4);
  const TestWorld world(Link::kShm, 2, schedule);
  const auto device = make_reference_device();
  HostCommunicator communicator(world.join(0, world.settings(50)), *device);
  communicator.begin_step(1, 1);
  communicator.slot(0, 1);
  std::vector<float> residual(kColumns);
  const Epilogue epilogue = {.residual = make_view(residual.data(), 1, kColumns)};
  std::string first;
  try {
    communicator.reduce(0, 1, epilogue);
  } catch (const Error& error) {
    first = error.what();
  }
  EXPECT_EQ(first.find("rank 0 waited 50 ms for rank 1 at gate EMBED (sequence 1) over shm: "), 0u) << first;
  EXPECT_EQ(residual, std::vector<float>(kColumns));  // nothing was summed
  EXPECT_THROW(communicator.reduce(0, 1, epilogue), Error);
  EXPECT_THROW(communicator.slot(0, 1), Error);
}

}  // namespace
}  // namespace coprime
