// Every decode kernel against an oracle that has never seen this code: scripts/oracles/sim_max_plus.py, written from
// docs/simulator-model.md, on random small chips, tick for tick. No link is shared (contention off).
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>

#include "attention/cube_groups.h"
#include "attention/reduce_schedule.h"
#include "sim/chip_file.h"
#include "sim/run.h"
#include "sim/testing/random_cases.h"

namespace coprime::sim {
namespace {

using testing::Case;
using testing::RandomCases;

constexpr std::array<std::string_view, 4> kVariants = {"opt1", "opt3", "opt3v", "opt2"};

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
