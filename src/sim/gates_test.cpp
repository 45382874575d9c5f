// The gates of ADR-0060, section 11, that decode has to pass, and for each a planted fault that it must find. G1:
// decode_data_test.cpp, prefill_test.cpp, short_test.cpp, its faults here; G4, and G3 of the ring: prefill_test.cpp.
#include <gtest/gtest.h>

#include <map>

#include "attention/cube_groups.h"
#include "base/error.h"
#include "sim/op_log_file.h"
#include "sim/run.h"
#include "sim/testing/attention_oracle.h"

namespace coprime::sim {
namespace {

using tl::DecodeArgs;
using tl::DecodeVariant;

RunSpec of_context(int64_t context, DecodeVariant variant = DecodeVariant::kOpt3) {
  RunSpec spec;
  spec.context = context, spec.variant = variant;
  return spec;
}

RunSpec one_rank(int64_t tiles, int64_t tile, DecodeVariant variant) {
  RunSpec spec = of_context(tiles * tile, variant);
  spec.cubes = spec.pes = spec.kv_heads = 1, spec.tile = tile;
  return spec;
}

tl::Launch launch_of(const RunSpec& spec) { return tl::make_launch({4, {4, 4}, attention::pe_mesh(spec.pes)}, spec); }

RunResult run_mutated(RunSpec spec, const auto& mutate) {
  tl::Launch launch = launch_of(spec);
  for (tl::Part& part : launch.programs[0].parts) mutate(part.place, std::get<DecodeArgs>(part.args));
  spec.forward = false;
  return run_launch(ahbm_chip(), spec, launch);
}

// ---- G2: keys and values are read once, whatever the number of query rows; the arithmetic grows with it.

bool reads_keys_once(const RunResult& result, const RunSpec& spec) {
  const int64_t queries = spec.cubes * spec.pes * spec.rows * spec.d * 2;
  return result.totals.pes.hbm_read == static_cast<uint64_t>(spec.kv_heads * (2 * spec.context * spec.d * 2 + queries));
}

TEST(GateG2, KeysAreReadOnceAndMacsScaleWithTheQueryRows) {
  for (const int64_t group : {1, 2, 4, 8}) {
    for (const int64_t positions : {1, 8}) {
      RunSpec spec = of_context(8192);
      spec.rows = group * positions;
      const RunResult result = run(ahbm_chip(), spec);
      EXPECT_TRUE(reads_keys_once(result, spec)) << group << " " << positions;
      EXPECT_EQ(result.totals.pes.macs, static_cast<uint64_t>(spec.kv_heads * 2 * spec.rows * spec.context * spec.d));
    }
  }
}

TEST(GateG2, FindsAPlanThatReadsTheKeysForEachTileOfRows) {
  RunSpec spec = of_context(8192);
  spec.rows = 32;  // a tile of rows at a time, for 64 rows
  RunResult twice = run(ahbm_chip(), spec);
  const RunResult again = run(ahbm_chip(), spec);
  twice.totals.pes.hbm_read += again.totals.pes.hbm_read;
  spec.rows = 64;
  EXPECT_FALSE(reads_keys_once(twice, spec));
}

// ---- G3: the reduction is the static one: its messages, of one hop each, and one store.

struct Reduction {
  std::map<uint32_t, int> sends;  // by PE
  uint64_t within = 0, across = 0, stores = 0;
  bool single_hops = false;
  bool operator==(const Reduction&) const = default;
};

Reduction reduction_of(const RunResult& result, const OpLog& log) {
  Reduction found;
  for (size_t i = 0; i < log.size(); ++i) {
    if (log.kind[i] == OpKind::kSend) ++found.sends[log.pe[i]];
  }
  const auto& levels = result.totals.levels;
  found.within = levels[0].messages, found.across = levels[1].messages;
  found.stores = result.totals.pes.issued[static_cast<size_t>(tl::Op::kStore)];
  found.single_hops = levels[0].byte_hops == levels[0].sent && levels[1].byte_hops == levels[1].sent;
  return found;
}

Reduction expected_reduction(const RunSpec& spec) {
  Reduction expected;
  const auto ranks = static_cast<uint32_t>(spec.cubes * spec.pes);
  const attention::CubeGroups groups = attention::cube_groups({4, 4}, spec.cubes);
  const uint32_t root = static_cast<uint32_t>(groups.cube(0, groups.group.centre()) * spec.pes + 1);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const auto pe = static_cast<uint32_t>(groups.cube(0, static_cast<int>(rank) / spec.pes) * spec.pes) + rank % 8;
    if (pe != root) expected.sends[pe] = 3;
  }
  expected.within = static_cast<uint64_t>(3 * spec.cubes * (spec.pes - 1));
  expected.across = static_cast<uint64_t>(3 * (spec.cubes - 1));
  expected.stores = 1;
  expected.single_hops = true;
  return expected;
}

RunSpec one_head(int cubes, OpLog* log) {
  RunSpec spec = of_context(cubes * 8 * 64);
  spec.cubes = cubes, spec.kv_heads = 1, spec.log = log;
  return spec;
}

TEST(GateG3, TheReductionIsTheStaticTree) {
  const std::map<int, int> rounds = {{1, 3}, {2, 4}, {4, 5}, {8, 6}, {16, 7}};
  for (const auto& [cubes, expected] : rounds) {
    OpLog log;
    const RunSpec spec = one_head(cubes, &log);
    const RunResult result = run(ahbm_chip(), spec);
    EXPECT_EQ(result.rounds, expected);
    EXPECT_EQ(result.sends_total, 3 * (cubes * 8 - 1));
    EXPECT_EQ(reduction_of(result, log), expected_reduction(spec)) << cubes;
  }
}

TEST(GateG3, FindsMessagesOfSeveralHops) {
  OpLog log;
  RunSpec spec = one_head(8, &log);
  spec.across = attention::ReduceTopology::kStar;
  const RunResult result = run(ahbm_chip(), spec);
  EXPECT_NE(reduction_of(result, log), expected_reduction(spec));
}

TEST(GateG3, FindsAWrongRoot) {
  OpLog log;
  const RunSpec spec = one_head(8, &log);
  // The root hands its state to a neighbour that thinks it is the root, too.
  const RunResult result = run_mutated(spec, [](tl::Place place, DecodeArgs& args) {
    if (place.pe != 1) return;
    if (place.cube == 1) args.reduce.across.root = false, args.reduce.across.parent = {tl::Level::kCube, 2};
    if (place.cube == 2) {
      args.reduce.across.children.push_back({tl::Level::kCube, 1});
      std::erase_if(args.reduce.across.children,
                    [](const tl::Peer& peer) { return peer.number != 1 && peer.number != 3; });
      args.reduce.across.root = true;
    }
    if (place.cube == 1)
      std::erase_if(args.reduce.across.children, [](const tl::Peer& peer) { return peer.number == 2; });
  });
  EXPECT_NE(reduction_of(result, log), expected_reduction(spec));
}

TEST(GateG3, ALostMessageEndsWithTheWaitForGraph) {
  const RunSpec spec = one_head(8, nullptr);
  try {
    run_mutated(spec, [](tl::Place place, DecodeArgs& args) {
      if (place.cube == 0 && place.pe == 7) args.reduce.within.children.push_back({tl::Level::kPe, 3});
    });
    ADD_FAILURE() << "it ended";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("CUBE 0 PE 7"), std::string::npos) << text;
    EXPECT_NE(text.find("cycle"), std::string::npos) << text;
  }
}

// ---- G5: without scopes the arena overflows at the tile that its sizes say; with them it never does.

int64_t tiles_without_scopes(const Chip& chip, const RunSpec& spec) {
  const int64_t rows = spec.rows, d = spec.d, tile = spec.tile;
  const bool ahead = spec.variant != DecodeVariant::kOpt1;
  int64_t persistent = 2 * rows * d * 2 + 4 * rows * (d + 2);  // Q, the output; m, l, O
  int64_t of_tile = 4 * rows * (3 * tile + 3 * d + 7);
  if (ahead) persistent += 2 * 4 * rows * tile, of_tile -= 4 * rows * tile;
  if (spec.variant == DecodeVariant::kOpt3v) persistent += 2 * 2 * d * tile;
  return (chip.pe.arena_bytes - persistent) / of_tile;
}

TEST(GateG5, WithoutScopesTheArenaOverflowsAtTheTileOfTheClosedForm) {
  for (const int64_t tile : {64, 128, 256}) {
    for (const DecodeVariant variant : {DecodeVariant::kOpt1, DecodeVariant::kOpt3, DecodeVariant::kOpt3v}) {
      RunSpec spec = one_rank(1, tile, variant);
      spec.scopes = false;
      const int64_t fit = tiles_without_scopes(ahbm_chip(), spec);
      spec.context = fit * tile;
      EXPECT_NO_THROW(run(ahbm_chip(), spec)) << fit;
      spec.context = (fit + 1) * tile;
      EXPECT_THROW(run(ahbm_chip(), spec), Error) << fit;
    }
  }
  EXPECT_EQ(tiles_without_scopes(ahbm_chip(), one_rank(1, 64, DecodeVariant::kOpt1)), 55);  // 56 but for those
}

TEST(GateG5, WithScopesAMillionTokensNeedNoMoreThanAFewTiles) {
  for (const DecodeVariant variant :
       {DecodeVariant::kOpt1, DecodeVariant::kOpt3, DecodeVariant::kOpt3v, DecodeVariant::kOpt2}) {
    const RunResult few = run(ahbm_chip(), one_rank(4, 64, variant)),
                    many = run(ahbm_chip(), one_rank(1 << 14, 64, variant));
    EXPECT_EQ(few.totals.arena_high_water, many.totals.arena_high_water);
    EXPECT_LT(many.totals.tcm_high_water, ahbm_chip().pe.tcm_bytes);
  }
}

// ---- G6: loads and computation overlap.

// What a tile takes in the steady state: what comes before and after the sweep does not help.
Tick period_of(const Chip& chip, RunSpec spec) {
  const auto ticks = [&](int64_t tiles) {
    spec.context = tiles * spec.tile;
    return run(chip, spec).ticks;
  };
  return (ticks(200) - ticks(100)) / 100;
}

bool overlaps(const Chip& chip, RunSpec spec) {
  const Tick period = period_of(chip, spec);
  spec.serial = true;
  return period < period_of(chip, spec);
}

TEST(GateG6, TimeIsBelowTheSerialSumAndNotBelowTheBound) {
  for (const DecodeVariant variant :
       {DecodeVariant::kOpt1, DecodeVariant::kOpt3, DecodeVariant::kOpt3v, DecodeVariant::kOpt2}) {
    RunSpec spec = of_context(1 << 16, variant);
    const RunResult result = run(ahbm_chip(), spec);
    EXPECT_GE(result.ticks, result.bounds.front().ticks);
    spec.serial = true;
    EXPECT_LT(result.ticks, run(ahbm_chip(), spec).ticks);
    EXPECT_TRUE(overlaps(ahbm_chip(), one_rank(1, 64, variant)));
  }
}

// Products that the CPU waits for, and MATH that it waits for: one thing at a time.
TEST(GateG6, FindsAKernelThatOverlapsNothing) {
  Chip chip = ahbm_chip();
  chip.pe.math.blocking = true;
  RunSpec spec = one_rank(1, 64, DecodeVariant::kOpt1);
  EXPECT_TRUE(overlaps(chip, spec));
  spec.kernel = tl::Kernel::kBlockingDot;
  EXPECT_FALSE(overlaps(chip, spec));
}

// ---- G7: products are composites, and the next tile's scores are issued before this tile's softmax.

// Of the PE that has number 0: how many composites were issued before the softmax of tile j began to be issued.
std::vector<int> composites_before_softmax(DecodeVariant variant) {
  OpLog log;
  RunSpec spec = of_context(64 * 64 * 4, variant);
  spec.kv_heads = 1, spec.log = &log;
  const RunResult result = run(ahbm_chip(), spec);
  EXPECT_EQ(result.totals.pes.issued[static_cast<size_t>(tl::Op::kDot)], 0u);
  std::map<uint32_t, OpKind> issued;  // by op: they are numbered as they are issued
  for (size_t i = 0; i < log.size(); ++i) {
    if (log.pe[i] == 0 && (log.kind[i] == OpKind::kComposite || log.kind[i] == OpKind::kMax))
      issued[log.op[i]] = log.kind[i];
  }
  std::vector<int> before;
  int composites = 0;
  for (const auto& [op, kind] : issued) {
    if (kind == OpKind::kComposite) ++composites;
    if (kind == OpKind::kMax) before.push_back(composites);
  }
  return before;
}

TEST(GateG7, TheNextScoresAreIssuedBeforeThisSoftmax) {
  EXPECT_EQ(composites_before_softmax(DecodeVariant::kOpt3), (std::vector{2, 4, 6, 7}));
  EXPECT_EQ(composites_before_softmax(DecodeVariant::kOpt1), (std::vector{1, 3, 5, 7}));  // what it must find
}

// ---- G8: the same op_log on every run, compiler and level of optimisation: the number stands here for all of them.

TEST(GateG8, TheOpLogIsTheSameEverywhere) {
  const auto hash = [](int64_t context, DecodeVariant variant) {
    OpLog log;
    RunSpec spec = of_context(context, variant);
    spec.log = &log;
    run(ahbm_chip(), spec);
    std::ranges::fill(log.line, uint16_t{0});  // editing a kernel moves its lines
    return op_log_hash(log);
  };
  EXPECT_EQ(hash(16384, DecodeVariant::kOpt3), hash(16384, DecodeVariant::kOpt3));
  EXPECT_NE(hash(16384, DecodeVariant::kOpt3), hash(16383, DecodeVariant::kOpt3));
  EXPECT_EQ(hash(16384, DecodeVariant::kOpt3), 1887855113255289303u);
  EXPECT_EQ(hash(16384, DecodeVariant::kOpt2), 7196931926368451787u);
}

// ---- G9: the ratios.

TEST(GateG9, RoundsMessagesBytesAndIssuesHaveTheirRatios) {
  RunSpec spec = of_context(64 * 64 * 8);
  const RunResult tree = run(ahbm_chip(), spec);
  EXPECT_EQ(63. / tree.rounds, 10.5);
  spec.kernel = tl::Kernel::kFanOut;
  const RunResult fan_out = run(ahbm_chip(), spec);
  EXPECT_EQ(fan_out.sends_total, 64 * tree.sends_total);

  // A tile's operations of the CPU: 13 against 2.
  const auto issues = [](DecodeVariant variant, int64_t tiles) {
    const RunResult result = run(ahbm_chip(), one_rank(tiles, 64, variant));
    uint64_t count = 0;
    for (const uint64_t issued : result.totals.pes.issued) count += issued;
    return static_cast<int64_t>(count);
  };
  EXPECT_EQ(issues(DecodeVariant::kOpt3, 12) - issues(DecodeVariant::kOpt3, 11), 13);
  EXPECT_EQ(issues(DecodeVariant::kOpt1, 12) - issues(DecodeVariant::kOpt1, 11), 13);
  EXPECT_EQ(issues(DecodeVariant::kOpt2, 12) - issues(DecodeVariant::kOpt2, 11), 2);

  // Keys for each KV head against keys for each query head.
  RunSpec heads = of_context(8192);
  const auto key_bytes = [&](int kv_heads, int64_t rows) {
    heads.kv_heads = kv_heads, heads.rows = rows;
    const RunResult result = run(ahbm_chip(), heads);
    const uint64_t queries = static_cast<uint64_t>(result.pes * rows * heads.d * 2);
    return (result.totals.pes.hbm_read - queries) * static_cast<uint64_t>(result.launches);
  };
  EXPECT_EQ(key_bytes(64, 1), 8 * key_bytes(8, 8));
}

TEST(GateG9, FindsAChainAndAnotherGroup) {
  RunSpec spec = of_context(64 * 64 * 8);
  spec.within = spec.across = attention::ReduceTopology::kChain;
  EXPECT_NE(63. / run(ahbm_chip(), spec).rounds, 10.5);
  spec = of_context(64 * 64 * 8);
  spec.cubes = 4;
  const int64_t sends = run(ahbm_chip(), spec).sends_total;
  spec.kernel = tl::Kernel::kFanOut;
  EXPECT_NE(run(ahbm_chip(), spec).sends_total, 64 * sends);
}

// ---- Faults in the numbers, which the oracles of data mode must find.

TEST(PlantedFaults, AScaleThatIsAppliedTwiceChangesTheOutput) {
  RunSpec spec = of_context(2000);
  spec.kv_heads = 1, spec.inputs = std::make_shared<CounterInputs>(5);
  const RunResult right = run_mutated(spec, [](tl::Place, DecodeArgs&) {});
  const RunResult wrong = run_mutated(spec, [](tl::Place, DecodeArgs& args) { args.scale *= args.scale; });
  double largest = 0;
  for (size_t i = 0; i < right.outputs[0].o.size(); ++i) {
    largest = std::max(largest, std::abs(double{right.outputs[0].o[i]} - double{wrong.outputs[0].o[i]}));
  }
  EXPECT_GT(largest, 2. / 256);  // the bound of GateG1.DecodeMatchesAttentionInF64OfAsymmetricInputs
}

TEST(PlantedFaults, ACounterThatIsOneShortIsSeenInL) {
  RunSpec spec = of_context(64 * 64);
  spec.kv_heads = 1, spec.inputs = std::make_shared<ZeroQueries>();
  const RunResult wrong = run_mutated(spec, [](tl::Place place, DecodeArgs& args) {
    if (place.cube == 5 && place.pe == 3) --args.tokens;
  });
  EXPECT_EQ(wrong.outputs[0].l[0], 64.f * 64 - 1);
}

}  // namespace
}  // namespace coprime::sim
