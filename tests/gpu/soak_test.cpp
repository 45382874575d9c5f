// Long runs: random sizes and delays, eager calls and two graphs in turns; every sum is compared on the GPU, and all
// ranks' hashes with each other. COPRIME_SOAK_CALLS sets the number of calls.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/clock.h"
#include "collective/all_reduce/wht6.h"
#include "gpu_ranks.h"

namespace coprime {
namespace {

using namespace testing;

uint32_t soak_calls() {
  const char* const text = std::getenv("COPRIME_SOAK_CALLS");
  return text == nullptr ? 10'000 : static_cast<uint32_t>(std::atol(text));
}

constexpr uint32_t kInRow = 3;
constexpr int64_t kMostWords = 8 * 1024;

// Steps of kInRow calls, eager and by two graphs in turns; an odd number in a graph, so that halves change places.
void run_steps(GpuRank& rank, uint32_t calls, const std::function<void(uint32_t)>& step) {
  constexpr uint32_t kInGraph = 33, kEager = 7;
  const auto graph = [&](uint32_t first) {
    return CudaGraph(rank.stream, [&] {
      for (uint32_t i = first; i < first + kInGraph; ++i) step(i);
    });
  };
  const CudaGraph a = graph(1u << 28), b = graph(1u << 29);
  rank.board.barrier();
  for (uint32_t call = 0, round = 0; call < calls; ++round) {
    a.launch(rank.stream);
    b.launch(rank.stream);
    a.launch(rank.stream);
    for (uint32_t i = 0; i < kEager; ++i) step(round * kEager + i);
    call += (3 * kInGraph + kEager) * kInRow;
    if (round % 8 == 0) rank.stream.synchronize();
    rank.reduce.check();
  }
}

struct SoakCase {
  int ranks;
  const char* row;
  uint32_t share;  // of the calls: one in so many
  uint32_t most_delay_ns;
};

class GpuSoak : public ::testing::TestWithParam<SoakCase> {};

TEST_P(GpuSoak, every_sum_is_right_on_all_ranks) {
  const SoakCase c = GetParam();
  const uint32_t calls = soak_calls() / c.share;
  std::vector<SoakTally> tallies(static_cast<size_t>(c.ranks));
  const int64_t begin_us = now_us();
  run_gpu_threads(c.ranks, test_settings(c.ranks), [&](GpuRank& rank) {
    load_soak_kernels(rank);
    // Sums in a row: a kernel may begin while the one before it runs.
    const auto step = [&](uint32_t number) {
      std::array<SoakCall, kInRow> soaks;
      for (uint32_t i = 0; i < kInRow; ++i) {
        soaks[i] = soak_call(rank, number * kInRow + i, kMostWords, c.most_delay_ns);
        soaks[i].words = std::max<int64_t>(soaks[i].words, std::string_view(c.row) == "two_shot" ? 1024 : 1);
        fill_vector(rank.stream.get(), soaks[i], rank.in.data() + i * kMostWords * 16);
      }
      for (uint32_t i = 0; i < kInRow; ++i) enqueue_sum(rank, {soaks[i], c.row}, i * kMostWords * 16);
      for (uint32_t i = 0; i < kInRow; ++i)
        check_sum(rank.stream.get(), soaks[i], rank.out.data() + i * kMostWords * 16, rank.tally_on_gpu());
    };
    run_steps(rank, calls, step);
    tallies[static_cast<size_t>(rank.rank())] = rank.read_tally();
    rank.reduce.check();
  });
  std::printf("soak: %d ranks, %s, %u calls, delays to %u us: %.1f s\n", c.ranks, c.row, calls, c.most_delay_ns / 1000,
              static_cast<double>(now_us() - begin_us) / 1e6);
  for (const SoakTally& tally : tallies) {
    EXPECT_EQ(tally.wrong, 0u);
    EXPECT_EQ(tally.hash, tallies[0].hash);
  }
}
INSTANTIATE_TEST_SUITE_P(rows, GpuSoak,
                         ::testing::Values(SoakCase{3, "push", 1, 50'000}, SoakCase{4, "push", 1, 50'000},
                                           SoakCase{2, "push", 1, 50'000}, SoakCase{3, "two_shot", 10, 50'000},
                                           SoakCase{4, "two_shot", 10, 50'000}, SoakCase{3, "flags", 10, 50'000},
                                           SoakCase{4, "flags", 10, 50'000}, SoakCase{3, "push", 1000, 10'000'000}));

// What was found and what was expected, by rank.
struct HashPair {
  uint64_t found, expected;
};
void expect_equal(const std::vector<HashPair>& hashes) {
  for (const HashPair& pair : hashes) {
    EXPECT_NE(pair.found, 0u);
    EXPECT_EQ(pair.found, pair.expected);
    EXPECT_EQ(pair.found, hashes[0].found);
  }
}
SoakTally read(const GpuRank& rank, const DeviceMemory& tally) {
  SoakTally value;
  rank.stream.synchronize();
  check_cuda(cudaMemcpy(&value, tally.data(), sizeof value, cudaMemcpyDeviceToHost), "read a tally");
  return value;
}
DeviceMemory make_tally() {
  DeviceMemory tally(sizeof(SoakTally));
  check_cuda(cudaMemset(tally.data(), 0, tally.size()), "clear a tally");
  check_cuda(cudaDeviceSynchronize(), "clear a tally");
  return tally;
}

class GpuNormSoak : public ::testing::TestWithParam<int> {};

// Fused calls in a row that share a residual, beside sum and norm apart.
TEST_P(GpuNormSoak, every_fused_norm_has_the_bytes_of_sum_and_norm) {
  const int ranks = GetParam();
  constexpr int64_t kColumns = 5120, kMostRows = 130, kBytes = kMostRows * kColumns * 2;
  const uint32_t calls = soak_calls() / 10;
  std::vector<HashPair> hashes(static_cast<size_t>(ranks));
  const int64_t begin_us = now_us();
  run_gpu_threads(ranks, test_settings(ranks), [&](GpuRank& rank) {
    load_soak_kernels(rank);
    const DeviceMemory other_tally = make_tally(), weight(kColumns * 4);
    std::vector<float> weights(kColumns);
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = 0.5f + static_cast<float>(i % 97) / 90;
    check_cuda(cudaMemcpy(weight.data(), weights.data(), kColumns * 4, cudaMemcpyHostToDevice), "upload");
    struct Outputs {
      DeviceMemory residual{kBytes}, normed{kBytes}, codes{kBytes / 2}, scales{kMostRows * 4 + 16};
    };
    const Outputs fused, apart;
    for (const Outputs* outputs : {&fused, &apart})
      check_cuda(cudaMemset(outputs->scales.data(), 0, outputs->scales.size()), "clear scales");
    check_cuda(cudaDeviceSynchronize(), "upload");
    rank.board.barrier();
    const auto step = [&](uint32_t number) {
      std::mt19937 random(number);
      constexpr int64_t kRows[] = {1, 2, 4, 5, 8, 13, 32, 33, 64, 130};
      const int64_t most_rows = kRows[random() % std::size(kRows)];
      const cudaStream_t stream = rank.stream.get();
      SoakCall soak = soak_call(rank, number * kInRow, 1, 50'000);
      soak.words = most_rows * kColumns / 8;
      soak.numbers_only = true;
      std::array<NormArguments, 2> arguments;
      for (size_t i = 0; i < 2; ++i) {
        const Outputs& outputs = i == 0 ? fused : apart;
        SoakCall residual = soak;  // the same on all ranks
        residual.seed = 2, residual.rank = 0, residual.delay_ns = 0;
        fill_vector(stream, residual, outputs.residual.data());
        arguments[i] = {.columns = kColumns,
                        .residual = reinterpret_cast<uint16_t*>(outputs.residual.data()),
                        .weight = reinterpret_cast<const float*>(weight.data()),
                        .eps = 1e-6f,
                        .one_plus = number % 2 == 0,
                        .normed = reinterpret_cast<uint16_t*>(outputs.normed.data()),
                        .codes = reinterpret_cast<uint8_t*>(outputs.codes.data()),
                        .scales = reinterpret_cast<float*>(outputs.scales.data())};
      }
      for (uint32_t i = 0; i < kInRow; ++i) {
        ++soak.call;
        fill_vector(stream, soak, rank.in.data() + i * kBytes);
        soak.delay_ns = 0;
      }
      const auto rows_of = [&](uint32_t i) { return i == 1 ? (most_rows + 1) / 2 : most_rows; };
      for (uint32_t i = 0; i < kInRow; ++i) {
        arguments[0].rows = rows_of(i);
        rank.reduce.sum_norm_quant(stream, arguments[0], rank.in.data() + i * kBytes);
      }
      for (uint32_t i = 0; i < kInRow; ++i) {
        arguments[1].rows = rows_of(i);
        rank.reduce.sum(stream, row_named("push"), {.type = DType::kBF16, .elements = rows_of(i) * kColumns},
                        rank.in.data() + i * kBytes, rank.out.data());
        add_norm_quant(stream, arguments[1], rank.out.data());
      }
      for (size_t i = 0; i < 2; ++i) {
        auto* const tally = i == 0 ? rank.tally_on_gpu() : reinterpret_cast<SoakTally*>(other_tally.data());
        const int64_t words = most_rows * kColumns / 8;
        hash_words(stream, arguments[i].residual, words, tally);
        hash_words(stream, arguments[i].normed, words, tally);
        hash_words(stream, arguments[i].codes, words / 2, tally);
        hash_words(stream, arguments[i].scales, (most_rows + 3) / 4, tally);
      }
    };
    run_steps(rank, calls, step);
    hashes[static_cast<size_t>(rank.rank())] = {rank.read_tally().hash, read(rank, other_tally).hash};
    rank.reduce.check();
  });
  std::printf("soak: %d ranks, push_norm_quant, %u calls: %.1f s\n", ranks, calls,
              static_cast<double>(now_us() - begin_us) / 1e6);
  expect_equal(hashes);
}
INSTANTIATE_TEST_SUITE_P(worlds, GpuNormSoak, ::testing::Values(2, 3));

class GpuWht6Soak : public ::testing::TestWithParam<int> {};

// A few vectors whose sums the host knows, in turns, with delays.
TEST_P(GpuWht6Soak, every_sum_has_the_bytes_of_the_host) {
  const int ranks = GetParam();
  const uint32_t calls = soak_calls() / 10;
  constexpr int64_t kElements[] = {65536, 65536 + 64, 131072 + 2048 * 5 + 640, 524288};
  std::vector<HashPair> hashes(static_cast<size_t>(ranks));
  const int64_t begin_us = now_us();
  run_gpu_threads(ranks, test_settings(ranks), [&](GpuRank& rank) {
    load_soak_kernels(rank);
    const cudaStream_t stream = rank.stream.get();
    const DeviceMemory other_tally = make_tally();
    std::vector<DeviceMemory> vectors, sums;
    for (uint32_t i = 0; i < std::size(kElements); ++i) {
      const auto bytes = static_cast<size_t>(kElements[i]) * 2;
      std::vector<std::byte> host(bytes);
      std::vector<Wht6Vector> wires;
      vectors.emplace_back(bytes);
      sums.emplace_back(bytes);
      for (int sender = 0; sender < ranks; ++sender) {
        const SoakCall soak{
            .seed = 3, .call = i, .rank = sender, .ranks = ranks, .words = kElements[i] / 8, .numbers_only = true};
        fill_vector(stream, soak, rank.out.data());
        if (sender == rank.rank()) fill_vector(stream, soak, vectors.back().data());
        rank.stream.synchronize();
        check_cuda(cudaMemcpy(host.data(), rank.out.data(), bytes, cudaMemcpyDeviceToHost), "download");
        wires.push_back(wht6_encode(DType::kBF16, host.data(), kElements[i]));
      }
      wht6_sum(DType::kBF16, wires, kElements[i], host.data());
      check_cuda(cudaMemcpy(sums.back().data(), host.data(), bytes, cudaMemcpyHostToDevice), "upload");
    }
    check_cuda(cudaDeviceSynchronize(), "upload");
    rank.board.barrier();
    const auto step = [&](uint32_t number) {
      const SoakCall delay = soak_call(rank, number, 1, 50'000);
      if (delay.delay_ns > 0) wait_on_gpu(stream, delay.delay_ns);
      for (uint32_t i = 0; i < kInRow; ++i) {
        const size_t which = (number + i * (number / 4 + 1)) % std::size(kElements);
        rank.reduce.sum(stream, row_named("wht6"), {.type = DType::kBF16, .elements = kElements[which]},
                        vectors[which].data(), rank.out.data());
        hash_words(stream, rank.out.data(), kElements[which] / 8, rank.tally_on_gpu());
        hash_words(stream, sums[which].data(), kElements[which] / 8, reinterpret_cast<SoakTally*>(other_tally.data()));
      }
    };
    run_steps(rank, calls, step);
    hashes[static_cast<size_t>(rank.rank())] = {rank.read_tally().hash, read(rank, other_tally).hash};
    rank.reduce.check();
  });
  std::printf("soak: %d ranks, wht6, %u calls: %.1f s\n", ranks, calls, static_cast<double>(now_us() - begin_us) / 1e6);
  expect_equal(hashes);
}
INSTANTIATE_TEST_SUITE_P(worlds, GpuWht6Soak, ::testing::Values(2, 3));

}  // namespace
}  // namespace coprime
