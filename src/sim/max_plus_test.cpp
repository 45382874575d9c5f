// Every decode kernel against an oracle that has never seen this code: scripts/oracles/sim_max_plus.py, written from
// docs/simulator-model.md, on random small chips, tick for tick. No link is shared (contention off).
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <random>

#include "attention/cube_groups.h"
#include "attention/reduce_schedule.h"
#include "attention/ring_order.h"
#include "sim/chip_file.h"
#include "sim/run.h"

namespace coprime::sim {
namespace {

using attention::ReduceTopology;

constexpr std::array<std::string_view, 4> kVariants = {"opt1", "opt3", "opt3v", "opt2"};

struct Case {
  Chip chip;
  RunSpec spec;
};

// Small numbers with many ties and ragged ends, so that every rule is the one that binds somewhere.
class RandomCases {
 public:
  explicit RandomCases(uint64_t seed) : random_(seed) {}

  Case next() {
    Case made{ahbm_chip(), {}};
    Chip& chip = made.chip;
    RunSpec& spec = made.spec;
    chip.contention = false;
    chip.sips = 1;
    chip.cube_rows = chip.cube_columns = 4;
    chip.pes = 1 << number(0, 3);
    chip.pe.ps_per_cycle = number(1, 3) * 500;
    chip.pe.issue = {number(1, 20), number(1, 20), number(1, 40), number(1, 40),
                     number(1, 20), number(1, 12), number(1, 20), number(1, 20)};
    chip.pe.math = {number(1, 64), number(0, 6), number(1, 5), number(1, 20), coin()};
    chip.pe.gemm = {number(1, 16), number(4, 32), number(4, 32), number(1, 20),
                    number(0, 20), number(0, 20), number(1, 6)};
    chip.pe.dma.hbm_gb_s = number(1, 300);
    chip.pe.dma.latency_ps = number(0, 200'000);
    chip.pe.dma.request_bytes = number(16, std::min<int64_t>(2 * chip.pe.gemm.tile_k * chip.pe.gemm.tile_n, 512));
    chip.pe.dma.reads_in_flight = number(1, 8);
    chip.pe.dma.stages = number(1, 8);
    chip.ipcq.slot_bytes = number(8, 600);
    chip.ipcq.slots = number(1, 4);
    chip.ipcq.packet_bytes = number(4, chip.ipcq.slot_bytes);
    for (Link* link : {&chip.ipcq.pe, &chip.ipcq.cube}) *link = {number(1, 200), number(0, 50'000)};

    spec.variant = static_cast<tl::DecodeVariant>(number(0, 3));
    spec.pes = static_cast<int>(chip.pes);
    spec.cubes = 1 << number(0, 4);
    spec.kv_heads = 1;
    spec.rows = number(1, 20);
    spec.d = number(1, 32);
    spec.tile = number(1, 40);
    spec.largest_context = number(1, spec.pes * spec.cubes * spec.tile * number(1, 4));
    spec.context = coin() ? spec.largest_context : number(1, spec.largest_context);
    spec.within = topology(attention::pe_mesh(spec.pes));
    spec.across = topology(attention::cube_groups({4, 4}, spec.cubes).group);
    return made;
  }

 private:
  int64_t number(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random_() % static_cast<uint64_t>(most - least + 1));
  }
  bool coin() { return random_() % 2 == 0; }
  ReduceTopology topology(attention::Mesh mesh) {
    const auto topology = attention::kReduceTopologies[static_cast<size_t>(number(0, 4))];
    return topology == ReduceTopology::kRing && !attention::has_ring(mesh) ? ReduceTopology::kTree : topology;
  }

  std::mt19937_64 random_;
};

std::string level_json(const attention::ReduceSchedule& schedule) {
  std::string children;
  for (const attention::ReduceMessage& message : schedule.messages)
    children += fmt::format("{}[{},{},{}]", children.empty() ? "" : ",", message.from, message.to, message.hops);
  return fmt::format(R"({{"root":{},"children":[{}]}})", schedule.root, children);
}

std::string case_json(const Case& made) {
  std::string chip;
  for (const std::string& key : chip_keys())
    chip += fmt::format("{}\"{}\":{}", chip.empty() ? "" : ",", key, chip_value(made.chip, key));
  const RunSpec& spec = made.spec;
  const auto reduce = attention::two_level_reduce(attention::pe_mesh(spec.pes), spec.within,
                                                  attention::cube_groups({4, 4}, spec.cubes).group, spec.across);
  return fmt::format(
      R"({{"chip":{{{}}},"kernel":"{}","context":{},"max_context":{},"tile":{},"rows":{},"d":{},"pes":{},"cubes":{},"reduce":[{},{}]}})",
      chip, kVariants[static_cast<size_t>(spec.variant)], spec.context, spec.largest_context, spec.tile, spec.rows,
      spec.d, spec.pes, spec.cubes, level_json(reduce.within), level_json(reduce.across));
}

// What the script says of the cases, in ticks.
std::vector<Tick> ask_oracle(const std::vector<Case>& cases) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("coprime-max-plus-{}.jsonl", ::getpid());
  {
    std::ofstream file(path);
    for (const Case& made : cases) file << case_json(made) << '\n';
  }
  const std::string command =
      fmt::format("python3 {}/scripts/oracles/sim_max_plus.py {}", COPRIME_SOURCE_DIR, path.string());
  FILE* pipe = ::popen(command.c_str(), "r");
  std::vector<Tick> ticks;
  unsigned long long value = 0;
  while (std::fscanf(pipe, "%llu", &value) == 1) ticks.push_back(value);
  EXPECT_EQ(::pclose(pipe), 0) << command;
  std::filesystem::remove(path);
  EXPECT_EQ(ticks.size(), cases.size());
  ticks.resize(cases.size());
  return ticks;
}

void compare(uint64_t seed, int count) {
  RandomCases random(seed);
  std::vector<Case> cases;
  for (int i = 0; i < count; ++i) cases.push_back(random.next());
  const std::vector<Tick> expected = ask_oracle(cases);
  int wrong = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    const Tick ticks = run(cases[i].chip, cases[i].spec).ticks;
    if (ticks != expected[i] && ++wrong <= 5)
      ADD_FAILURE() << "case " << i << " of seed " << seed << ": " << ticks << " ticks; the oracle says " << expected[i]
                    << " of " << case_json(cases[i]);
  }
  EXPECT_EQ(wrong, 0) << "of " << count;
}

TEST(MaxPlus, oracle_agrees_to_the_tick_on_10000_random_small_chips) { compare(1, 10'000); }

TEST(MaxPlus, oracle_agrees_on_the_chip_of_the_document_at_every_C) {
  std::vector<Case> cases;
  for (const int cubes : {1, 2, 4, 8, 16}) {
    for (size_t variant = 0; variant < kVariants.size(); ++variant) {
      Case made{ahbm_chip(), {}};
      made.chip.contention = false;
      made.spec.variant = static_cast<tl::DecodeVariant>(variant);
      made.spec.cubes = cubes;
      made.spec.kv_heads = 1;
      made.spec.context = made.spec.largest_context = 65'536;
      cases.push_back(made);
    }
  }
  const std::vector<Tick> expected = ask_oracle(cases);
  for (size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(run(cases[i].chip, cases[i].spec).ticks, expected[i]) << i;
}

}  // namespace
}  // namespace coprime::sim
