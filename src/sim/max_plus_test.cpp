// Every kernel against an oracle that has never seen this code: scripts/oracles/sim_max_plus.py, written from
// docs/simulator-model.md, on random small chips, tick for tick. No link is shared (contention off).
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>

#include "attention/cube_groups.h"
#include "attention/reduce_schedule.h"
#include "attention/ring_order.h"
#include "base/testing.h"
#include "sim/chip_file.h"
#include "sim/run.h"
#include "sim/testing/random_cases.h"

namespace coprime::sim {
namespace {

using testing::Case;
using testing::RandomCases;

constexpr std::array<std::string_view, 4> kVariants = {"opt1", "opt3", "opt3v", "opt2"};

std::string mesh_json(attention::Mesh mesh) { return fmt::format("[{},{}]", mesh.rows, mesh.columns); }

std::string ring_json(attention::Mesh mesh) {
  return fmt::format("[{}]", fmt::join(attention::ring_order(mesh).place, ","));
}

std::string messages_json(const attention::ReduceSchedule& schedule) {
  std::string messages;
  for (const attention::ReduceMessage& message : schedule.messages)
    messages += fmt::format("{}[{},{}]", messages.empty() ? "" : ",", message.from, message.to);
  return fmt::format("[{}]", messages);
}

// What the script reads: names and numbers of what was asked for, and what attention/ makes of it.
std::string case_json(const Case& made) {
  std::string chip;
  for (const std::string& key : chip_keys())
    chip += fmt::format("{}\"{}\":{}", chip.empty() ? "" : ",", key, chip_value(made.chip, key));
  const RunSpec& spec = made.spec;
  std::string text = fmt::format(R"({{"chip":{{{}}},"kernel":"{}","variant":"{}")", chip, tl::name_of(spec.kernel),
                                 kVariants[static_cast<size_t>(spec.variant)]);
  const auto add = [&text](std::string_view key, const auto& value) { text += fmt::format(R"(,"{}":{})", key, value); };
  add("context", spec.context);
  add("max_context", std::max(spec.context, spec.largest_context));
  add("tile", spec.tile), add("rows", spec.rows), add("d", spec.d);
  add("pes", spec.pes), add("cubes", spec.cubes);
  add("kv_heads", spec.kv_heads), add("kv_per_cube", spec.kv_per_cube);
  add("query_begin", spec.query_begin), add("query_end", spec.query_end > 0 ? spec.query_end : spec.context);
  add("query_rows", spec.query_rows);
  const attention::CubeGroups groups = attention::cube_groups({4, 4}, spec.cubes);
  const attention::Mesh pes = attention::pe_mesh(spec.pes);
  add("groups", groups.count());
  add("meshes", fmt::format("[{},{}]", mesh_json(pes), mesh_json(groups.group)));
  add("rings", fmt::format("[{},{}]", ring_json(pes), ring_json(groups.group)));
  add("reduce", fmt::format("[{},{}]", messages_json(attention::reduce_schedule(pes, spec.within)),
                            messages_json(attention::reduce_schedule(groups.group, spec.across))));
  return text + "}";
}

// What the script says of the cases, in ticks.
std::vector<Tick> ask_oracle(const std::vector<Case>& cases) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("coprime-max-plus-{}.jsonl", ::getpid());
  {
    std::ofstream file(path);
    for (const Case& made : cases) file << case_json(made) << '\n';
  }
  const std::string command =
      fmt::format("python3 -B {}/scripts/oracles/sim_max_plus.py {}", COPRIME_SOURCE_DIR, path.string());
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

void compare(const std::vector<Case>& cases) {
  const std::vector<Tick> expected = ask_oracle(cases);
  int wrong = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    const Tick ticks = run(cases[i].chip, cases[i].spec).ticks;
    if (ticks != expected[i] && ++wrong <= 5)
      ADD_FAILURE() << tl::name_of(cases[i].spec.kernel) << ": " << ticks << " ticks; the oracle says " << expected[i]
                    << " of " << case_json(cases[i]);
  }
  EXPECT_EQ(wrong, 0) << "of " << cases.size();
}

std::vector<Case> decode_cases(uint64_t seed, int count) {
  RandomCases random(seed);
  std::vector<Case> cases;
  for (int i = 0; i < count; ++i) cases.push_back(random.next());
  return cases;
}

// Of each kernel but decode so many.
std::vector<Case> other_cases(uint64_t seed, int count) {
  RandomCases random(seed);
  std::vector<Case> cases;
  std::array<int, tl::kKernels.size()> found = {};
  for (size_t most = count * (tl::kKernels.size() - 2); cases.size() < most;) {
    Case made = random.next_short_one_of_any_kernel();
    int& number = found[static_cast<size_t>(made.spec.kernel)];
    if (made.spec.kernel != tl::Kernel::kDecode && number++ < count) cases.push_back(made);
  }
  return cases;
}

TEST(MaxPlus, decode_agrees_to_the_tick_on_random_small_chips) { compare(decode_cases(1, 300)); }
TEST(MaxPlus, every_other_kernel_agrees_to_the_tick_on_random_small_chips) { compare(other_cases(2, 30)); }

// COPRIME_SOAK_PERCENT=1000: 10,000 of decode, and as many of the seven others together.
TEST(MaxPlusSoak, decode_agrees_to_the_tick_on_more_random_small_chips) {
  compare(decode_cases(3, static_cast<int>(10 * coprime::testing::soak_percent())));
}
TEST(MaxPlusSoak, every_other_kernel_agrees_to_the_tick_on_more_random_small_chips) {
  compare(other_cases(4, static_cast<int>(143 * coprime::testing::soak_percent() / 100)));
}

Case on_the_chip_of_the_document(tl::Kernel kernel, int cubes, int pes, int64_t context) {
  Case made{ahbm_chip(), {}};
  made.chip.contention = false;
  made.spec.kernel = kernel;
  made.spec.cubes = cubes, made.spec.pes = pes;
  made.spec.kv_heads = 1;
  made.spec.context = context;
  return made;
}

TEST(MaxPlus, every_kernel_agrees_on_the_chip_of_the_document_at_every_C) {
  using tl::Kernel;
  std::vector<Case> cases;
  for (const int cubes : {1, 2, 4, 8, 16}) {
    for (size_t variant = 0; variant < kVariants.size(); ++variant) {
      cases.push_back(on_the_chip_of_the_document(Kernel::kDecode, cubes, 8, 8'000));
      cases.back().spec.variant = static_cast<tl::DecodeVariant>(variant);
    }
    cases.push_back(on_the_chip_of_the_document(Kernel::kBlockingDot, cubes, 8, 8'000));
    cases.push_back(on_the_chip_of_the_document(Kernel::kFanOut, cubes, 2, 2'000));
    cases.push_back(on_the_chip_of_the_document(Kernel::kAllReduce, cubes, 8, 1));
    for (const Kernel kernel : {Kernel::kPrefill, Kernel::kKvFanOut}) {
      cases.push_back(on_the_chip_of_the_document(kernel, cubes, kernel == Kernel::kPrefill ? 2 : 1, 125 * cubes));
      cases.back().spec.rows = cubes;
    }
  }
  for (const int owned : {1, 2, 4, 8}) {
    for (const Kernel kernel : {Kernel::kDecodeShort, Kernel::kPrefillShort}) {
      cases.push_back(on_the_chip_of_the_document(kernel, 1, 8, 600));
      cases.back().spec.kv_per_cube = cases.back().spec.kv_heads = owned;
    }
  }
  compare(cases);
}

}  // namespace
}  // namespace coprime::sim
