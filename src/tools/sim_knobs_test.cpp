// What a kernel takes changes something, or is refused; what it does not take changes nothing.
#include "tools/sim_knobs.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "sim/run.h"
#include "tools/sim_sweep.h"

namespace coprime {
namespace {

using tl::Kernel;

const std::map<std::string, std::string> kOthers = {
    {"variant", "opt1"},   {"context", "2K"},    {"max-context", "8K"},  {"cubes", "2"},
    {"pes", "4"},          {"tile", "32"},       {"kv-heads", "4"},      {"group", "2"},
    {"head-dim", "64"},    {"kv-per-cube", "2"}, {"query-begin", "256"}, {"query-end", "512"},
    {"query-rows", "128"}, {"within", "chain"},  {"across", "star"},     {"users", "2"}};

// Small enough to run often; a head-packing run needs one query head.
sim::RunSpec spec_of(Kernel kernel) {
  sim::RunSpec spec;
  spec.kernel = kernel;
  spec.context = 4096, spec.rows = 4, spec.cubes = 4, spec.kv_heads = 2;
  if (kernel == Kernel::kHeadPacking) spec.rows = 1;
  if (kernel == Kernel::kKvFanOut) spec.cubes = 1, spec.pes = 2, spec.context = 1024;
  return spec;
}

// All that a person is shown; empty: refused.
std::string told(const sim::RunSpec& spec) {
  try {
    const sim::RunResult result = sim::run(sim::ahbm_chip(), spec);
    std::string text = fmt::format("{} {} {} {} {} {} {}", result.ticks, result.rounds, result.sends,
                                   result.sends_total, result.pes, result.energy_pj, result.totals.arena_high_water);
    for (const uint64_t issued : result.totals.pes.issued) text += fmt::format(" {}", issued);
    return text;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage) << error.what();
    return "";
  }
}

TEST(SimKnobs, are_those_that_change_something) {
  for (const Kernel kernel : tl::kKernels) {
    const std::string before = told(spec_of(kernel));
    ASSERT_FALSE(before.empty()) << name_of(kernel);
    for (const auto& [knob, value] : kOthers) {
      sim::RunSpec spec = spec_of(kernel);
      sim::Chip none = sim::ahbm_chip();
      set_swept(knob, value, none, spec);
      if (takes(kernel, knob)) {
        EXPECT_NE(told(spec), before) << name_of(kernel) << " " << knob;
      } else {
        EXPECT_EQ(told(spec), before) << name_of(kernel) << " " << knob;
      }
    }
  }
}

TEST(SimKnobs, refusals_name_the_kernel_and_what_it_takes) {
  try {
    check_knob({Kernel::kDecodeShort}, "cubes", "--");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_STREQ(
        error.what(),
        "decode-short has no use for --cubes: it takes --context, --max-context, --kv-per-cube, --pes, --tile, "
        "--kv-heads, --group, --head-dim, --variant, --within");
  }
  check_knob({Kernel::kDecodeShort, Kernel::kDecode}, "cubes", "--");  // one of them does
  check_knob({Kernel::kDecodeShort}, "topology", "");
  EXPECT_THROW(check_knob({Kernel::kPrefill}, "topology", ""), Error);
}

}  // namespace
}  // namespace coprime
