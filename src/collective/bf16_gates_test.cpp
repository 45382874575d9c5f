// Gates in bf16 on shared memory: against plain loops of the two references.
#include <gtest/gtest.h>

#include <map>

#include "base/number_formats.h"
#include "collective/all_reduce/add_norm_quant.h"
#include "collective/all_reduce/rank_order_sum.h"
#include "collective/communicator.h"
#include "collective/testing/mixed_gates.h"
#include "device/reference/reference_device.h"
#include "gate/testing.h"

namespace coprime {
namespace {

using testing::MixedGates;

// A schedule of 16 entries of both types, over few rows and over many, which owners sum.
TEST(Bf16Gates, a_schedule_of_both_types_has_the_bytes_of_the_references_on_every_link) {
  constexpr int kRowsOfStep[] = {1, 8, 400, 3};
  for (const auto& [link, ranks] : {std::pair(testing::Link::kShm, 1), std::pair(testing::Link::kShm, 2),
                                    std::pair(testing::Link::kShm, 5), std::pair(testing::Link::kTcp, 3)}) {
    const MixedGates gates(ranks);
    std::map<std::pair<int, int>, std::vector<std::byte>> expected;
    for (const int rows : kRowsOfStep) {
      for (int entry = 0; entry < 16; ++entry) expected[{entry, rows}] = gates.expected(entry, rows);
    }
    const testing::TestWorld world(link, ranks, gates.schedule());
    testing::run_threads(ranks, [&, ranks = ranks](int rank) {
      const auto device = make_reference_device();
      HostCommunicator communicator(ranks == 1 ? testing::lone_exchange(gates.schedule()) : world.join(rank), *device);
      testing::HostMemory memory;
      for (const int rows : kRowsOfStep) {
        communicator.begin_step(rows, rows);
        for (int entry = 0; entry < 16; ++entry)
          EXPECT_EQ(gates.run(communicator, memory, entry, rows), expected.at({entry, rows}))
              << "rank " << rank << " of " << ranks << ", entry " << entry << ", " << rows << " rows";
      }
    });
  }
}

TEST(Bf16Gates, the_hash_of_a_gate_covers_codes_and_scales) {
  const MixedGates gates(1);
  const auto device = make_reference_device();
  HostCommunicator communicator(testing::lone_exchange(gates.schedule()), *device);
  communicator.hash_gates(true);
  communicator.begin_step(1, 1);
  testing::HostMemory memory;
  for (int entry = 0; entry < 16; ++entry) gates.run(communicator, memory, entry, 1);
  EXPECT_EQ(communicator.gate_hashes().size(), 16u);
}

}  // namespace
}  // namespace coprime
