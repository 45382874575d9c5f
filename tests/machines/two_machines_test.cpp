// The same kernels on the simulated chip and on this host: the same bits.
#include <gtest/gtest.h>

#include "attention/cube_groups.h"
#include "host_mesh/run.h"
#include "sim/run.h"

namespace coprime {
namespace {

using attention::ReduceTopology;
using tl::Kernel;

struct GroupSize {
  int cubes, pes;
};
constexpr GroupSize kSizes[] = {{1, 1}, {1, 8}, {2, 8}, {8, 8}};

void expect_same_bits(const sim::RunSpec& spec, const std::string& what) {
  const sim::Chip chip = sim::ahbm_chip();
  const auto on_chip = sim::run(chip, spec).outputs;
  const tl::Places places{static_cast<int>(chip.sips),
                          {static_cast<int>(chip.cube_rows), static_cast<int>(chip.cube_columns)},
                          attention::pe_mesh(spec.pes)};
  for (const std::optional<uint64_t> seed : {std::optional<uint64_t>{}, std::optional<uint64_t>{7}}) {
    const auto on_host = host_mesh::run(places, {1, 600, 1 << 20}, spec, spec.inputs.get(), seed);
    ASSERT_EQ(on_host.size(), on_chip.size()) << what;
    for (size_t head = 0; head < on_chip.size(); ++head) {
      ASSERT_FALSE(on_chip[head].o.empty()) << what;
      EXPECT_EQ(on_host[head].o, on_chip[head].o) << what;
      EXPECT_EQ(on_host[head].m, on_chip[head].m) << what;
      EXPECT_EQ(on_host[head].l, on_chip[head].l) << what;
      EXPECT_EQ(on_host[head].stores, on_chip[head].stores) << what;
    }
  }
}

sim::RunSpec data_spec(Kernel kernel, GroupSize size) {
  sim::RunSpec spec;
  spec.kernel = kernel;
  spec.cubes = size.cubes, spec.pes = size.pes;
  spec.kv_heads = 2;
  spec.inputs = std::make_shared<tl::CounterInputs>(31);
  return spec;
}

TEST(TwoMachines, DecodeHasTheSameBitsForEveryVariantSizeAndTopology) {
  for (const GroupSize size : kSizes) {
    for (const auto variant :
         {tl::DecodeVariant::kOpt1, tl::DecodeVariant::kOpt3, tl::DecodeVariant::kOpt3v, tl::DecodeVariant::kOpt2}) {
      for (const ReduceTopology within : attention::kReduceTopologies) {
        for (const ReduceTopology across : attention::kReduceTopologies) {
          if (across != within && size.cubes == 1) continue;
          sim::RunSpec spec = data_spec(Kernel::kDecode, size);
          spec.variant = variant, spec.within = within, spec.across = across;
          spec.context = 300, spec.kv_heads = 1;
          expect_same_bits(spec, fmt::format("{} x {} variant {} {} {}", size.cubes, size.pes,
                                             static_cast<int>(variant), name_of(within), name_of(across)));
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(TwoMachines, PrefillHasTheSameBits) {
  for (const GroupSize size : kSizes) {
    sim::RunSpec spec = data_spec(Kernel::kPrefill, size);
    spec.rows = size.cubes > 1 ? size.cubes : 2;
    spec.d = 32, spec.tile = 8, spec.query_rows = 16;
    spec.context = 203;
    expect_same_bits(spec, fmt::format("{} x {}", size.cubes, size.pes));
  }
}

TEST(TwoMachines, ShortKernelsHaveTheSameBits) {
  for (const Kernel kernel : {Kernel::kDecodeShort, Kernel::kPrefillShort}) {
    sim::RunSpec spec = data_spec(kernel, {1, 8});
    spec.kv_per_cube = 2, spec.kv_heads = 4;
    spec.d = 32, spec.tile = 8, spec.query_rows = 16;
    spec.context = 150;
    expect_same_bits(spec, std::string(name_of(kernel)));
  }
}

TEST(TwoMachines, SeveralUsersHaveTheSameBits) {
  for (const Kernel kernel : {Kernel::kDecode, Kernel::kPrefill}) {
    sim::RunSpec spec = data_spec(kernel, {2, 4});
    spec.users = 3;
    spec.rows = 2, spec.d = 32, spec.tile = 8, spec.query_rows = 16;
    spec.context = 150;
    expect_same_bits(spec, std::string(name_of(kernel)));
  }
}

TEST(TwoMachines, AllReduceAndBaselinesHaveTheSameBits) {
  expect_same_bits(data_spec(Kernel::kAllReduce, {16, 1}), "all-reduce");
  for (const Kernel kernel : {Kernel::kFanOut, Kernel::kBlockingDot, Kernel::kKvFanOut}) {
    sim::RunSpec spec = data_spec(kernel, {2, 4});
    spec.d = 32, spec.tile = 8, spec.query_rows = 16;
    spec.context = 150;
    expect_same_bits(spec, std::string(name_of(kernel)));
  }
}

}  // namespace
}  // namespace coprime
