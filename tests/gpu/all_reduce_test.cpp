// The all-reduces on GPUs, ranks as threads. Against host references, byte for byte.
#include <gtest/gtest.h>

#include <array>

#include "base/number_formats.h"
#include "collective/all_reduce/add_norm_quant.h"
#include "collective/all_reduce/push_protocol.h"
#include "collective/all_reduce/rank_order_sum.h"
#include "collective/all_reduce/wht6.h"
#include "gpu_ranks.h"

namespace coprime {
namespace {

using namespace testing;

// Elements that the sum must treat as the reference does, of one rank; then random bits to the end.
std::vector<std::byte> hard_vector(DType type, int rank, int64_t elements) {
  std::vector<std::byte> vector(static_cast<size_t>(elements * dtype_bytes(type)));
  std::mt19937 random(static_cast<uint32_t>(rank) + 100);
  int64_t at = 0;
  const auto put = [&](float value) { store_element(type, value, vector.data(), at++); };
  const auto put_bits = [&](uint32_t bits) {
    std::memcpy(vector.data() + at * dtype_bytes(type), &bits, static_cast<size_t>(dtype_bytes(type)));
    ++at;
  };
  for (uint32_t pattern = 0; pattern < 256; ++pattern) put(pattern >> rank & 1 ? -0.0f : 0.0f);
  const std::array<std::array<float, 3>, 10> triples = {{{1, 0x1p-8f, 0},
                                                         {1 + 0x1p-7f, 0x1p-8f, 0},
                                                         {1, 0x1p-8f, 0x1p-8f},
                                                         {0x1p24f, 1, -0x1p24f},
                                                         {1, 0x1p24f, -0x1p24f},
                                                         {INFINITY, -INFINITY, 1},
                                                         {INFINITY, 1, 1},
                                                         {3e38f, 3e38f, -3e38f},
                                                         {65504, 16, 0},
                                                         {0x1p-126f, -0x1p-127f, 0x1p-130f}}};
  for (const auto& triple : triples) put(rank < 3 ? triple[static_cast<size_t>(rank)] : 0);
  const bool half = type != DType::kF32;
  // Subnormals, and every payload of what is no number, at one rank after the other.
  for (uint32_t low = 1; low < 0x80; ++low) put_bits(rank == 0 ? (half ? 0x8000 : 0x80000000) | low : low * 3 % 0x80);
  const uint32_t first_nan = type == DType::kBF16 ? 0x7f81 : type == DType::kF16 ? 0x7c01 : 0x7f800001;
  const uint32_t nans = type == DType::kBF16 ? 0x7f : 0x3ff;
  for (uint32_t i = 0; i < nans; ++i) {
    put_bits(i % 3 == static_cast<uint32_t>(rank) ? first_nan + i : 0x3c00);
    put_bits(i % 3 == static_cast<uint32_t>(rank) ? (half ? 0x8000 : 0x80000000) | (first_nan + i) : 0x3c00);
  }
  while (at * dtype_bytes(type) % 16 != 0) put(1);
  const int64_t empties = at * dtype_bytes(type) / 4;  // empty words, in each lane alone and in all
  auto* const words = reinterpret_cast<uint32_t*>(vector.data()) + empties;
  for (uint32_t i = 0; i < 64; ++i)
    words[i] = i / 4 == 4 || i % 4 == i / 4 % 4 ? kEmptyWord : static_cast<uint32_t>(random());
  for (int64_t i = empties + 64; i < static_cast<int64_t>(vector.size()) / 4; ++i)
    reinterpret_cast<uint32_t*>(vector.data())[i] = static_cast<uint32_t>(random());
  return vector;
}

std::vector<std::byte> reference(DType type, const std::vector<std::vector<std::byte>>& vectors) {
  std::vector<const std::byte*> terms;
  for (const auto& vector : vectors) terms.push_back(vector.data());
  std::vector<std::byte> out(vectors[0].size());
  sum_in_rank_order(type, terms, 0, static_cast<int64_t>(out.size()) / dtype_bytes(type), out.data());
  return out;
}

std::vector<std::byte> download(const void* data, size_t bytes) {
  std::vector<std::byte> host(bytes);
  check_cuda(cudaMemcpy(host.data(), data, bytes, cudaMemcpyDeviceToHost), "download");
  return host;
}
// In the rank's stream: a copy from pageable memory may arrive after the call of cudaMemcpy().
void upload(const GpuRank& rank, void* data, const void* host, size_t bytes) {
  check_cuda(cudaMemcpyAsync(data, host, bytes, cudaMemcpyHostToDevice, rank.stream.get()), "upload");
}
void upload(const GpuRank& rank, void* data, const std::vector<std::byte>& host) {
  upload(rank, data, host.data(), host.size());
}

// The first element that differs; -1 for none.
int64_t first_difference(const std::vector<std::byte>& a, const std::vector<std::byte>& b, int element_bytes) {
  const auto [x, y] = std::ranges::mismatch(a, b);
  return x == a.end() ? -1 : (x - a.begin()) / element_bytes;
}

class GpuSums : public ::testing::TestWithParam<int> {};

TEST_P(GpuSums, equal_the_host_reference_on_hard_inputs_in_every_type_and_way) {
  const int ranks = GetParam();
  constexpr DType kTypes[] = {DType::kBF16, DType::kF16, DType::kF32};
  std::map<DType, std::vector<std::vector<std::byte>>> vectors;
  std::map<DType, std::vector<std::byte>> expected;
  for (const DType type : kTypes) {
    for (int rank = 0; rank < ranks; ++rank) vectors[type].push_back(hard_vector(type, rank, 100 * 1024 + 8));
    expected[type] = reference(type, vectors[type]);
  }
  run_gpu_threads(ranks, test_settings(ranks), [&](GpuRank& rank) {
    for (const std::string_view row : {"push", "two_shot", "flags", "push"}) {
      if (row == "two_shot" && ranks == 2) continue;
      for (const DType type : kTypes) {
        for (const bool in_place : {false, true}) {
          const auto& mine = vectors[type][static_cast<size_t>(rank.rank())];
          void* const out = in_place ? rank.in.data() : rank.out.data();
          upload(rank, rank.in.data(), mine);
          const auto elements = static_cast<int64_t>(mine.size()) / dtype_bytes(type);
          rank.reduce.sum(rank.stream.get(), row_named(row), {.type = type, .elements = elements}, rank.in.data(), out);
          rank.stream.synchronize();
          rank.reduce.check();
          EXPECT_EQ(first_difference(download(out, mine.size()), expected[type], dtype_bytes(type)), -1)
              << "rank " << rank.rank() << " of " << ranks << ", " << row << " " << dtype_name(type)
              << (in_place ? " in place" : "");
        }
      }
    }
    EXPECT_EQ(rank.reduce.bail_outs(), 0u);
  });
}
INSTANTIATE_TEST_SUITE_P(worlds, GpuSums, ::testing::Values(2, 3, 4, 5, 8));

// The fused kernel, the stand-alone one after a sum, and the host.
struct NormCase {
  int64_t rows, columns;
  bool one_plus;
};
struct NormBuffers {
  explicit NormBuffers(const NormCase& c)
      : residual(static_cast<size_t>(c.rows * c.columns) * 2),
        normed(static_cast<size_t>(c.rows * c.columns) * 2),
        codes(static_cast<size_t>(c.rows * c.columns)),
        scales(static_cast<size_t>(c.rows) * 4),
        weight(static_cast<size_t>(c.columns) * 4) {}
  NormArguments arguments(const NormCase& c) const {
    return {c.rows,
            c.columns,
            reinterpret_cast<uint16_t*>(residual.data()),
            reinterpret_cast<const float*>(weight.data()),
            1e-6f,
            c.one_plus,
            reinterpret_cast<uint16_t*>(normed.data()),
            reinterpret_cast<uint8_t*>(codes.data()),
            reinterpret_cast<float*>(scales.data())};
  }
  std::vector<std::byte> all() const {
    std::vector<std::byte> bytes;
    for (const DeviceMemory* memory : {&residual, &normed, &codes, &scales}) {
      const auto part = download(memory->data(), memory->size());
      bytes.insert(bytes.end(), part.begin(), part.end());
    }
    return bytes;
  }
  DeviceMemory residual, normed, codes, scales, weight;
};

std::vector<std::byte> random_bf16(int64_t count, uint32_t seed, float scale) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::byte> vector(static_cast<size_t>(count) * 2);
  for (int64_t i = 0; i < count; ++i) store_element(DType::kBF16, scale * normal(random), vector.data(), i);
  return vector;
}

TEST_P(GpuSums, a_fused_norm_has_the_bytes_of_sum_and_norm_and_of_the_host) {
  const int ranks = GetParam();
  for (const NormCase& c : {NormCase{1, 8, false}, NormCase{8, 5120, true}, NormCase{128, 5120, false},
                            NormCase{13, 6152, false}, NormCase{512, 1024, true}, NormCase{5, 16384, false}}) {
    const int64_t count = c.rows * c.columns;
    std::vector<std::vector<std::byte>> vectors;
    for (int rank = 0; rank < ranks; ++rank) {
      vectors.push_back(random_bf16(count, static_cast<uint32_t>(rank), 1));
      store_element(DType::kBF16, NAN, vectors.back().data(), rank % c.columns);  // a row that holds none
    }
    std::vector<std::byte> residual = random_bf16(count, 77, 3);
    for (auto& vector : vectors) store_element(DType::kBF16, -0.0f, vector.data(), count - 3);
    store_element(DType::kBF16, -0.0f, residual.data(), count - 3);  // a code that keeps the sign of zero
    std::vector<float> weight(static_cast<size_t>(c.columns));
    for (size_t i = 0; i < weight.size(); ++i) weight[i] = 0.5f + static_cast<float>(i % 97) / 90;
    std::vector<float> scratch(static_cast<size_t>(c.columns));
    // The host's.
    const std::vector<std::byte> sums = reference(DType::kBF16, vectors);
    std::vector<std::byte> expected_residual = residual, normed(residual.size()), codes(static_cast<size_t>(count)),
                           scales(static_cast<size_t>(c.rows) * 4);
    for (int64_t row = 0; row < c.rows; ++row) {
      const auto halves = [&](auto& bytes) {
        return std::span(reinterpret_cast<uint16_t*>(bytes.data()) + row * c.columns, static_cast<size_t>(c.columns));
      };
      const std::span sum(reinterpret_cast<const uint16_t*>(sums.data()) + row * c.columns,
                          static_cast<size_t>(c.columns));
      add_norm_quant_row(sum, {weight, 1e-6f, c.one_plus}, halves(expected_residual), halves(normed),
                         {reinterpret_cast<uint8_t*>(codes.data()) + row * c.columns, static_cast<size_t>(c.columns)},
                         reinterpret_cast<float*>(scales.data())[row], scratch);
    }
    std::vector<std::byte> expected;
    for (const auto* part : {&expected_residual, &normed, &codes, &scales})
      expected.insert(expected.end(), part->begin(), part->end());
    run_gpu_threads(ranks, test_settings(ranks), [&](GpuRank& rank) {
      NormBuffers fused(c), apart(c);
      for (NormBuffers* buffers : {&fused, &apart}) {
        upload(rank, buffers->residual.data(), residual);
        upload(rank, buffers->weight.data(), weight.data(), weight.size() * 4);
      }
      upload(rank, rank.in.data(), vectors[static_cast<size_t>(rank.rank())]);
      rank.board.barrier();
      rank.reduce.sum_norm_quant(rank.stream.get(), fused.arguments(c), rank.in.data());
      rank.reduce.sum(rank.stream.get(), row_named("push"), {.type = DType::kBF16, .elements = count}, rank.in.data(),
                      rank.out.data());
      add_norm_quant(rank.stream.get(), apart.arguments(c), rank.out.data());
      rank.stream.synchronize();
      rank.reduce.check();
      EXPECT_EQ(first_difference(fused.all(), expected, 1), -1) << c.rows << " x " << c.columns << ", fused";
      EXPECT_EQ(first_difference(apart.all(), expected, 1), -1) << c.rows << " x " << c.columns << ", apart";
      rank.board.barrier();
    });
  }
}

TEST_P(GpuSums, wht6_has_the_bytes_of_the_host_and_leaves_the_slots_fit_for_pushes) {
  const int ranks = GetParam();
  for (const DType type : {DType::kBF16, DType::kF16}) {
    for (const int64_t elements : {int64_t{65536}, int64_t{65536 + 64}, int64_t{1024 * 1024 + 2048 * 5 + 640}}) {
      std::vector<std::vector<std::byte>> vectors;
      std::vector<Wht6Vector> wires;
      for (int rank = 0; rank < ranks; ++rank) {
        std::mt19937 random(static_cast<uint32_t>(rank));
        std::normal_distribution<float> normal;
        vectors.emplace_back(static_cast<size_t>(elements) * 2);
        for (int64_t i = 0; i < elements; ++i) {
          const float scale = i / 64 % 7 == 3 ? 0.0f : i / 64 % 7 == 5 ? 1e-3f : 1.0f;
          store_element(type, scale * normal(random), vectors.back().data(), i);
        }
        if (rank == 1) store_element(type, INFINITY, vectors.back().data(), 777);
        wires.push_back(wht6_encode(type, vectors.back().data(), elements));
      }
      std::vector<std::byte> expected(vectors[0].size());
      wht6_sum(type, wires, elements, expected.data());
      const std::vector<std::byte> exact = reference(type, vectors);
      run_gpu_threads(ranks, test_settings(ranks), [&](GpuRank& rank) {
        upload(rank, rank.in.data(), vectors[static_cast<size_t>(rank.rank())]);
        for (int repeat = 0; repeat < 3; ++repeat) {
          const AllReduceCall call{.type = type, .elements = elements};
          rank.reduce.sum(rank.stream.get(), row_named("wht6"), call, rank.in.data(), rank.out.data());
          rank.stream.synchronize();
          rank.reduce.check();
          const auto found = download(rank.out.data(), expected.size());
          EXPECT_EQ(first_difference(found, expected, 2), -1)
              << "rank " << rank.rank() << " of " << ranks << ", " << elements << " " << dtype_name(type);
          const AllReduceCall half{.type = type, .elements = elements / 2};
          rank.reduce.sum(rank.stream.get(), row_named("push"), half, rank.in.data(), rank.out.data());
          rank.stream.synchronize();
          rank.reduce.check();
          const auto sum = download(rank.out.data(), static_cast<size_t>(elements));
          EXPECT_TRUE(std::equal(sum.begin(), sum.end(), exact.begin())) << "push after wht6";
        }
      });
    }
  }
}

// Graphs and eager calls in turns, by every exact row that the world has.
TEST_P(GpuSums, graphs_and_eager_calls_mix_and_the_call_number_wraps_around) {
  const int ranks = GetParam();
  GpuAllReduceSettings settings = test_settings(ranks);
  settings.first_call = 0xffffffc0;
  std::vector<SoakTally> tallies(static_cast<size_t>(ranks));
  run_gpu_threads(ranks, settings, [&](GpuRank& rank) {
    load_soak_kernels(rank);
    const auto rows = ranks == 2 ? std::vector<std::string_view>{"push", "flags", "push"}
                                 : std::vector<std::string_view>{"push", "two_shot", "flags", "push"};
    const auto step = [&](uint32_t call) {
      SoakCall soak = soak_call(rank, call, 128 * 1024, 50'000);
      const std::string_view row = rows[call % rows.size()];
      if (row == "two_shot") soak.words = std::max<int64_t>(soak.words, 1024);
      enqueue(rank, {soak, row});
    };
    const auto graph = [&](uint32_t first) {
      return CudaGraph(rank.stream, [&] {
        for (uint32_t call = first; call < first + 21; ++call) step(call);  // an odd number: halves change places
      });
    };
    const CudaGraph a = graph(1000), b = graph(2000);
    rank.board.barrier();
    for (uint32_t round = 0; round < 40; ++round) {
      (round % 2 == 0 ? a : b).launch(rank.stream);
      for (uint32_t call = 0; call < round % 4; ++call) step(round * 4 + call);
    }
    tallies[static_cast<size_t>(rank.rank())] = rank.read_tally();
    rank.reduce.check();
  });
  for (const SoakTally& tally : tallies) {
    EXPECT_EQ(tally.wrong, 0u);
    EXPECT_EQ(tally.hash, tallies[0].hash);
  }
}

// The variants of the push kernel, three ranks, many calls of all sizes with delays.
std::vector<SoakTally> run_variant(const Kernel& kernel, uint32_t calls, int timeout_ms, int& errors) {
  std::vector<SoakTally> tallies(3);
  std::atomic<int> failed = 0;
  run_gpu_threads(3, test_settings(3, timeout_ms), [&](GpuRank& rank) {
    load_soak_kernels(rank);
    for (uint32_t call = 0; call < calls; ++call) enqueue(rank, {soak_call(rank, call, 4096, 20'000), "", kernel});
    rank.stream.synchronize();
    tallies[static_cast<size_t>(rank.rank())] = rank.read_tally();
    try {
      rank.reduce.check();
    } catch (const Error&) {
      ++failed;
    }
  });
  errors = failed;
  return tallies;
}

TEST(GpuPush, with_fences_and_without_gives_the_same) {
  int errors = 0;
  const auto fenced = run_variant(fenced_push_kernel(), 3000, 20'000, errors);
  EXPECT_EQ(errors, 0);
  const auto shipped = run_variant(push_kernel_for(DType::kBF16, 3), 3000, 20'000, errors);
  EXPECT_EQ(errors, 0);
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(fenced[rank].wrong, 0u);
    EXPECT_EQ(shipped[rank].wrong, 0u);
    EXPECT_EQ(fenced[rank].hash, shipped[rank].hash);
  }
}

TEST(GpuPush, a_rank_that_reads_late_gets_its_words_and_with_one_half_alone_it_does_not) {
  int errors = 0;
  for (const SoakTally& tally : run_variant(slow_push_kernel(), 1000, 20'000, errors)) EXPECT_EQ(tally.wrong, 0u);
  EXPECT_EQ(errors, 0);
  const auto tallies = run_variant(one_half_push_kernel(), 1000, 500, errors);
  uint64_t wrong = 0;
  for (const SoakTally& tally : tallies) wrong += tally.wrong;
  EXPECT_GT(wrong + static_cast<uint64_t>(errors), 0u);
}

TEST(GpuPush, own_term_first_goes_wrong_and_ranks_differ) {
  int errors = 0;
  const auto tallies = run_variant(own_first_push_kernel(), 300, 20'000, errors);
  EXPECT_EQ(errors, 0);
  EXPECT_GT(tallies[1].wrong, 0u);
  EXPECT_NE(tallies[0].hash, tallies[1].hash);
}

TEST(GpuPush, the_grid_leaves_room_for_the_ranks_that_share_the_gpu) {
  const int gpus = count_gpus();
  run_gpu_threads(4, test_settings(4), [&](GpuRank& rank) {
    const Kernel kernel = push_kernel_for(DType::kBF16, 4);
    const int sharing = (4 - rank.rank() % gpus + gpus - 1) / gpus;
    EXPECT_EQ(rank.reduce.blocks_for(kernel, 1 << 30), resident_blocks(kernel) / sharing);
    EXPECT_EQ(rank.reduce.blocks_for(kernel, 1), 1);
  });
}

}  // namespace
}  // namespace coprime
