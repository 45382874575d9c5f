// The gates of GPU ranks: the calls that ranks on shared memory make, with the same bytes.
#include <gtest/gtest.h>

#include <deque>

#include "collective/cuda/gpu_communicator.h"
#include "collective/testing/mixed_gates.h"
#include "gpu_ranks.h"

namespace coprime {
namespace {

using namespace testing;

// Blocks of one allocation, so that nothing is allocated while others wait.
class GpuMemory final : public RankMemory {
 public:
  explicit GpuMemory(const CudaStream& stream) : stream_(stream), memory_(16 * kMiB) {}
  std::byte* put(const std::vector<std::byte>& bytes) override {
    std::byte* const place = memory_.data() + used_;
    used_ += (bytes.size() + 255) / 256 * 256;
    put_into(place, bytes);
    return place;
  }
  void put_into(std::byte* place, const std::vector<std::byte>& bytes) override {
    const auto& kept = sent_.emplace_back(bytes);
    check_cuda(cudaMemcpyAsync(place, kept.data(), kept.size(), cudaMemcpyHostToDevice, stream_.get()), "upload");
  }
  std::vector<std::byte> get(const std::byte* place, size_t size) override {
    std::vector<std::byte> bytes(size);
    stream_.synchronize();  // a copy to pageable memory behind a kernel that waits keeps other threads' copies waiting
    check_cuda(cudaMemcpyAsync(bytes.data(), place, size, cudaMemcpyDeviceToHost, stream_.get()), "download");
    stream_.synchronize();
    return bytes;
  }
  void clear() override {
    stream_.synchronize();
    used_ = 0;
    sent_.clear();
  }

 private:
  const CudaStream& stream_;
  DeviceMemory memory_;
  size_t used_ = 0;
  std::deque<std::vector<std::byte>> sent_;
};

TEST(GpuCommunicator, runs_a_schedule_of_both_types_with_the_bytes_of_the_references) {
  for (const int ranks : {2, 3, 5}) {
    const MixedGates gates(ranks);
    std::map<std::pair<int, int>, std::vector<std::byte>> expected;
    for (const int rows : {1, 8, 400, 3}) {
      for (int entry = 0; entry < 16; ++entry) expected[{entry, rows}] = gates.expected(entry, rows);
    }
    run_gpu_threads(ranks, test_settings(ranks), [&](GpuRank& rank) {
      GpuMemory memory(rank.stream);
      GpuCommunicator communicator(rank.reduce, rank.stream, gates.schedule());
      rank.board.barrier();
      for (const int rows : {1, 8, 400, 3}) {
        communicator.begin_step(rows, rows);
        for (int entry = 0; entry < 16; ++entry)
          EXPECT_EQ(gates.run(communicator, memory, entry, rows), expected.at({entry, rows}))
              << "rank " << rank.rank() << " of " << ranks << ", entry " << entry << ", " << rows << " rows";
      }
      communicator.check();
      rank.board.barrier();
    });
  }
}

// Rank r holds r + 1 columns of every row, in descending order.
TEST(GpuCommunicator, gathers_parts_of_unequal_size) {
  constexpr int kRanks = 3, kRows = 300, kSlotColumns = 100, kColumns = 200;
  const GateSchedule schedule = {{GateKind::kFfnInput, 0, kSlotColumns * 4, kRows}};
  const std::vector<GatherPart> parts = {{150, 50}, {20, 100}, {0, 7}};
  run_gpu_threads(kRanks, test_settings(kRanks), [&](GpuRank& rank) {
    GpuMemory memory(rank.stream);
    GpuCommunicator communicator(rank.reduce, rank.stream, schedule);
    rank.board.barrier();
    const auto value = [](int from, int row, int column) {
      return static_cast<float>(from * 1'000'000 + row * 1000 + column);
    };
    for (int repeat = 0; repeat < 3; ++repeat) {
      communicator.begin_step(kRows, kRows);
      std::vector<float> slot(kRows * kSlotColumns), out(kRows * kColumns, -1.0f), expected = out;
      for (int row = 0; row < kRows; ++row) {
        for (int c = 0; c < kSlotColumns; ++c)
          slot[static_cast<size_t>(row * kSlotColumns + c)] = value(rank.rank(), row, c);
        for (int peer = 0; peer < kRanks; ++peer) {
          const GatherPart& part = parts[static_cast<size_t>(peer)];
          for (int c = 0; c < part.count; ++c)
            expected[static_cast<size_t>(row * kColumns + part.first + c)] = value(peer, row, c);
        }
      }
      const auto bytes = [](const std::vector<float>& v) {
        const auto* const first = reinterpret_cast<const std::byte*>(v.data());
        return std::vector<std::byte>(first, first + v.size() * 4);
      };
      memory.clear();
      memory.put_into(communicator.typed_slot(0, kRows).data, bytes(slot));
      auto* const gathered = reinterpret_cast<float*>(memory.put(bytes(out)));
      communicator.all_gather(0, kRows, parts, make_view(gathered, kRows, kColumns));
      EXPECT_EQ(memory.get(reinterpret_cast<std::byte*>(gathered), out.size() * 4), bytes(expected)) << rank.rank();
    }
    communicator.check();
    rank.board.barrier();
  });
}

TEST(GpuCommunicator, refuses_gates_out_of_order_and_what_no_kernel_takes) {
  const GateSchedule schedule = {{GateKind::kEmbedding, -1, 1024, 4}, {GateKind::kFfn, 0, 1028, 1}};
  run_gpu_threads(2, test_settings(2), [&](GpuRank& rank) {
    GpuCommunicator communicator(rank.reduce, rank.stream, schedule);
    communicator.begin_step(1, 1);
    EXPECT_THROW(communicator.typed_slot(1, 1), Error);
    EXPECT_THROW(communicator.begin_step(1, 1), Error);  // it sticks
    GpuCommunicator odd(rank.reduce, rank.stream, {schedule[1]});
    odd.begin_step(1, 1);
    odd.typed_slot(0, 1);
    try {
      odd.reduce(0, 1, {.residual = {rank.out.data(), DType::kF32, 1, 257}});
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      EXPECT_NE(std::string(error.what()).find("1028 bytes are no multiple of 16"), std::string::npos) << error.what();
    }
  });
}

}  // namespace
}  // namespace coprime
