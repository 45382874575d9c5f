// Prefill in data mode against attention in f64 and closed forms (of gate G1); its counts (gates G3 and G4, each with a
// planted fault that it must find); the ring's time in the setting of the closed form.
#include <gtest/gtest.h>

#include "attention/cube_groups.h"
#include "sim/run.h"
#include "sim/testing/attention_oracle.h"

namespace coprime::sim {
namespace {

using tl::Kernel, tl::Op;

struct GroupSize {
  int cubes, pes;
};
constexpr GroupSize kSizes[] = {{1, 1}, {1, 8}, {2, 8}, {8, 8}};

// A small head, so that f64 attention of every row is cheap.
RunSpec spec_of(GroupSize size, int64_t context, std::shared_ptr<const Inputs> inputs) {
  RunSpec spec;
  spec.kernel = Kernel::kPrefill;
  spec.cubes = size.cubes, spec.pes = size.pes;
  spec.rows = size.cubes > 1 ? size.cubes : 2;
  spec.d = 32, spec.tile = 8, spec.query_rows = 16;
  spec.context = context;
  spec.kv_heads = 2;
  spec.inputs = std::move(inputs);
  return spec;
}

void expect_attention(const RunSpec& spec, const RunResult& result) {
  ASSERT_EQ(result.outputs.size(), static_cast<size_t>(spec.kv_heads));
  const int64_t end = spec.query_end > 0 ? spec.query_end : spec.context;
  for (int head = 0; head < spec.kv_heads; ++head) {
    const HeadOutput& output = result.outputs[static_cast<size_t>(head)];
    ASSERT_EQ(output.o.size(), static_cast<size_t>((end - spec.query_begin) * spec.rows * spec.d));
    for (int64_t position = spec.query_begin; position < end; ++position) {
      for (int64_t g = 0; g < spec.rows; ++g) {
        const auto row = static_cast<size_t>((position - spec.query_begin) * spec.rows + g);
        const std::vector<double> expected = attend(*spec.inputs, head, position * spec.rows + g, position + 1, spec.d);
        for (size_t i = 0; i < expected.size(); ++i) {
          // P, and the output, are rounded to bf16: half a unit of 2^-8 each, of numbers below 2.
          ASSERT_NEAR(double{output.o[row * static_cast<size_t>(spec.d) + i]}, expected[i], 2. / 256)
              << "head " << head << " position " << position << " g " << g;
        }
      }
    }
  }
}

TEST(GateG1, PrefillMatchesCausalAttentionInF64OfAsymmetricInputs) {
  for (const GroupSize size : kSizes) {
    for (const int64_t context : {int64_t{1}, int64_t{64}, int64_t{203}}) {
      const RunSpec spec = spec_of(size, context, std::make_shared<CounterInputs>(5));
      expect_attention(spec, run(ahbm_chip(), spec));
      if (HasFatalFailure()) FAIL() << size.cubes << " x " << size.pes << ", " << context;
    }
  }
}

// T_q = 40 is no multiple of a tile of 32 rows: masks repeat head by head, and tiles of rows straddle heads.
TEST(Prefill, FortyQueriesOfEightHeadsInOneBlock) {
  for (const Kernel kernel : {Kernel::kPrefill, Kernel::kPrefillShort}) {
    RunSpec spec = spec_of({1, 1}, 100, std::make_shared<CounterInputs>(6));
    spec.kernel = kernel;
    spec.rows = 8, spec.query_rows = 320;
    spec.query_begin = 60;
    expect_attention(spec, run(ahbm_chip(), spec));
  }
}

TEST(Prefill, ShortPrefillMatchesCausalAttentionInF64) {
  for (const int owned : {1, 2}) {
    for (const int pes : {1, 8}) {
      RunSpec spec = spec_of({1, pes}, 203, std::make_shared<CounterInputs>(8));
      spec.kernel = Kernel::kPrefillShort;
      spec.kv_per_cube = owned;
      expect_attention(spec, run(ahbm_chip(), spec));
    }
  }
}

TEST(Prefill, KvFanOutMatchesCausalAttentionInF64) {
  RunSpec spec = spec_of({2, 2}, 75, std::make_shared<CounterInputs>(9));
  spec.kernel = Kernel::kKvFanOut;
  expect_attention(spec, run(ahbm_chip(), spec));
}

TEST(Prefill, ZeroQueriesCountTheKeysThatEachRowSees) {
  for (const GroupSize size : kSizes) {
    const RunSpec spec = spec_of(size, 330, std::make_shared<ZeroQueries>());
    const RunResult result = run(ahbm_chip(), spec);
    for (const HeadOutput& output : result.outputs) {
      ASSERT_EQ(output.l.size(), static_cast<size_t>(spec.context * spec.rows));
      for (size_t row = 0; row < output.l.size(); ++row)
        ASSERT_EQ(output.l[row], static_cast<float>(row / static_cast<size_t>(spec.rows) + 1));
    }
  }
}

TEST(Prefill, ConstantValuesGiveThemselves) {
  for (const GroupSize size : kSizes) {
    const RunSpec spec = spec_of(size, 130, std::make_shared<ConstantValues>(4));
    for (const HeadOutput& output : run(ahbm_chip(), spec).outputs) {
      for (const float value : output.o) ASSERT_NEAR(value, 1.5f, 1.5f / 128);
    }
  }
}

// Blocks of queries as long as tiles: block i sees i tiles whole and one in part. Two products a tile.
TEST(GateG4, ComputesTheLowerTriangleAndReadsNothingElse) {
  RunSpec spec = spec_of({1, 1}, 16 * 8, nullptr);
  spec.query_rows = spec.tile * spec.rows;
  spec.kv_heads = 1;
  const RunResult result = run(ahbm_chip(), spec);
  const auto issued = [&](Op op) { return result.totals.pes.issued[static_cast<size_t>(op)]; };
  const uint64_t n = 16, tile_bytes = 8 * 32 * 2;
  EXPECT_EQ(issued(Op::kComposite), n * (n + 1));
  EXPECT_EQ(issued(Op::kMask), n);
  const uint64_t queries = 16 * 8 * 2 * 32 * 2;
  EXPECT_EQ(result.totals.pes.hbm_read, queries + n * (n + 1) * tile_bytes);
  EXPECT_EQ(result.sends_total, 0);
}

RunSpec ring_spec(int cubes, int pes) {
  RunSpec spec;
  spec.kernel = Kernel::kPrefill;
  spec.cubes = cubes, spec.pes = pes;
  spec.rows = cubes, spec.kv_heads = 1;
  spec.context = int64_t{cubes} * pes * 64;  // a tile in each region: one pass a chunk
  spec.query_rows = 64;
  return spec;
}

RunResult run_mutated(const RunSpec& spec, const auto& mutate) {
  tl::Launch launch = tl::make_launch({4, {4, 4}, attention::pe_mesh(spec.pes)}, spec);
  for (tl::Part& part : launch.programs[0].parts) mutate(part.place, std::get<tl::RingPrefillArgs>(part.args));
  return run_launch(ahbm_chip(), spec, launch);
}

// ---- G3 of prefill: blocks move along links between neighbours alone.

double hops_of_a_message(const RunResult& result) {
  const LevelTotals& cubes = result.totals.levels[1];
  return static_cast<double>(cubes.byte_hops) / static_cast<double>(cubes.sent);
}

TEST(GateG3, TheRingHasSingleHopsAndLinearIdsAreFoundOut) {
  const RunSpec spec = ring_spec(8, 8);
  EXPECT_EQ(hops_of_a_message(run(ahbm_chip(), spec)), 1);
  const attention::CubeGroups groups = attention::cube_groups({4, 4}, 8);
  const RunResult linear = run_mutated(spec, [&](tl::Place place, tl::RingPrefillArgs& args) {
    const int at = groups.place_of(place.cube);
    args.cubes.position = at;
    args.cubes.next = {tl::Level::kCube, groups.cube(0, (at + 1) % 8)};
    args.cubes.previous = {tl::Level::kCube, groups.cube(0, (at + 7) % 8)};
    for (int i = 0; i < 8; ++i) args.cubes.blocks[static_cast<size_t>(i)] = i;
  });
  EXPECT_EQ(hops_of_a_message(linear), 14. / 8);  // two of the eight edges have four hops
}

// ---- G4: what lies in the future is not computed (on one PE: ComputesTheLowerTriangleAndReadsNothingElse).

// Of 36 block steps 28 are whole: 64 tiles of rows by keys in each CUBE; 8 lie on the diagonal: 36 of them.
constexpr uint64_t kTilesOfAPrompt = 8 * (28 * 64 + 8 * 36);

// Two a tile.
uint64_t products_of(const RunResult& result) { return result.totals.pes.issued[static_cast<size_t>(Op::kComposite)]; }

TEST(GateG4, AWholePromptComputes36StepsAndSkips28) {
  const RunResult result = run(ahbm_chip(), ring_spec(8, 8));
  EXPECT_EQ(result.steps_computed, 36);
  EXPECT_EQ(result.steps_skipped, 28);
  EXPECT_EQ(result.sends_total, result.sends);
  EXPECT_EQ(products_of(result), 2 * kTilesOfAPrompt);
  EXPECT_EQ(result.totals.pes.issued[static_cast<size_t>(Op::kMask)], 8u * 64);
}

TEST(GateG4, FindsAFullGrid) {
  const RunResult full =
      run_mutated(ring_spec(8, 8), [](tl::Place, tl::RingPrefillArgs& args) { args.skip_future = false; });
  EXPECT_EQ(products_of(full), 2u * 8 * 64 * 64);
  EXPECT_NE(products_of(full), 2 * kTilesOfAPrompt);
}

TEST(RingPrefill, OneRingPerPeSendsFourteenTimesAChunk) {
  RunSpec spec = ring_spec(8, 8);
  spec.query_begin = 3 * 512, spec.query_end = 4 * 512;  // chunk 3
  const RunResult result = run(ahbm_chip(), spec);
  EXPECT_EQ(result.totals.levels[1].messages, 14u * 64);      // 7 transfers of K and V on each of 64 PEs: 14 * 8 a CUBE
  EXPECT_EQ(result.totals.levels[0].messages, 14u * 64 * 4);  // what 4 blocks of 8 take to spread
  EXPECT_EQ(result.sends_total, result.sends);
  EXPECT_EQ(result.rounds, 7);
  EXPECT_EQ(result.totals.levels[1].byte_hops, result.totals.levels[1].sent);  // every edge is one hop
  EXPECT_EQ(result.totals.levels[1].sent, 64u * 7 * 2 * 64 * 128 * 2);
  EXPECT_EQ(result.totals.levels[2].messages, 0u);
}

// Nothing takes time but products and links.
Chip bare_chip(int pes) {
  Chip chip = ahbm_chip();
  chip.contention = false;
  chip.pes = pes;
  chip.pe.ps_per_cycle = 1;
  chip.pe.issue = {};
  chip.pe.math = {1 << 30, 0, 1, 64, false};
  chip.pe.gemm.fill_cycles = chip.pe.gemm.drain_cycles = 0;
  chip.pe.dma.hbm_gb_s = 1'000'000'000, chip.pe.dma.latency_ps = 0;
  chip.ipcq.cube = chip.ipcq.pe = {1, 0};
  chip.ipcq.slots = 64;
  return chip;
}
constexpr Tick kTileBytes = 2 * 64 * 128 * 2;                          // of K and V
constexpr int64_t kSubtiles = 2 * (128 / 64) * (64 / 32) * (64 / 32);  // of a fold of 64 rows

// Of chunk `chunk`; slice i lies at ring position i.
Tick makespan(const Chip& chip, int cubes, int chunk) {
  RunSpec spec = ring_spec(cubes, static_cast<int>(chip.pes));
  const int64_t positions = 64 * chip.pes;
  spec.query_begin = chunk * positions, spec.query_end = spec.query_begin + positions;
  tl::Launch launch = tl::make_launch({1, {4, 4}, attention::pe_mesh(spec.pes)}, spec);
  Machine machine(chip, 0, 1, nullptr, true);
  for (tl::Part& part : launch.programs[0].parts) {
    auto& args = std::get<tl::RingPrefillArgs>(part.args);
    for (int i = 0; i < cubes; ++i) args.cubes.blocks[static_cast<size_t>(i)] = i;
    machine.launch(part.place, "prefill", nullptr,
                   [&](tl::Tl<Processor>& tl) { return tl::start_kernel(tl, part.args); });
  }
  return machine.run().end.time;
}

TEST(RingPrefill, MakespanIsThatOfTheClosedForm) {
  Chip chip = bare_chip(1);
  const Tick transfer = kTileBytes * 1000;
  for (const Tick compute : {transfer / 2, transfer, transfer * 2}) {
    chip.pe.gemm.subtile_cycles = static_cast<int64_t>(compute) / kSubtiles;
    const Tick block = static_cast<Tick>(chip.pe.gemm.subtile_cycles * kSubtiles);
    for (int chunk = 0; chunk < 8; ++chunk) {
      const Tick expected =
          static_cast<Tick>(7 - chunk) * transfer + static_cast<Tick>(chunk) * std::max(block, transfer) + block;
      // A MATH operation takes a tick, and DMA a few: some 100 a step.
      EXPECT_NEAR(static_cast<double>(makespan(chip, 8, chunk)), static_cast<double>(expected), 1000) << chunk;
    }
  }
}

// With 8 PEs a step takes the longest of its transfer between CUBEs, its 8 folds and its 7 hops among the PEs; the last
// chunk computes in every step.
TEST(RingPrefill, AStepTakesTheLongestOfComputeTransferAndSpread) {
  for (const int64_t compute_us : {1, 30, 100}) {
    for (const int64_t hop_gb_s : {1, 4}) {
      for (const int64_t transfer_gb_s : {1, 50}) {
        Chip chip = bare_chip(8);
        chip.pe.gemm.subtile_cycles = compute_us * 1'000'000 / kSubtiles;
        chip.ipcq.pe.gb_s = hop_gb_s, chip.ipcq.cube.gb_s = transfer_gb_s;
        const Tick fold = static_cast<Tick>(chip.pe.gemm.subtile_cycles * kSubtiles);
        const Tick hop = kTileBytes * 1000 / static_cast<Tick>(hop_gb_s);
        const Tick transfer = kTileBytes * 1000 / static_cast<Tick>(transfer_gb_s);
        const Tick folds = 7 * std::max(fold, hop) + fold;
        const Tick expected = 3 * std::max(folds, transfer) + folds;
        const double measured = static_cast<double>(makespan(chip, 4, 3));
        EXPECT_NEAR(measured / static_cast<double>(expected), 1, 1e-3) << fold << " " << hop << " " << transfer;
      }
    }
  }
}

TEST(RingPrefill, RefusesWhatHasNoRing) {
  RunSpec spec = ring_spec(8, 8);
  spec.rows = 4;
  EXPECT_THROW(run(ahbm_chip(), spec), Error);
  spec = ring_spec(8, 8);
  spec.query_end = spec.context + 1;
  EXPECT_THROW(run(ahbm_chip(), spec), Error);
}

}  // namespace
}  // namespace coprime::sim
