// Two layers one after the other in one run, on what the first has left: the same again, for every kernel; and what is
// not the same is found.
#include <gtest/gtest.h>

#include "base/error.h"
#include "sim/testing/random_cases.h"

namespace coprime::sim {
namespace {

using tl::Kernel;

TEST(Layers, AreEqualForEveryKernelByEventsInClosedFormAndWithALog) {
  for (const Kernel kernel : tl::kKernels) {
    RunSpec spec;
    spec.kernel = kernel;
    spec.context = 2000, spec.cubes = 4, spec.kv_heads = 2, spec.rows = 4;
    if (kernel == Kernel::kHeadPacking) spec.rows = 1;
    if (kernel == Kernel::kKvFanOut) spec.cubes = 1, spec.pes = 2, spec.context = 500;
    const RunResult one = run(ahbm_chip(), spec);
    spec.layers = 80;
    for (const bool forward : {true, false}) {
      for (const bool logged : {true, false}) {
        OpLog log;
        spec.forward = forward, spec.log = logged ? &log : nullptr;
        const RunResult both = run(ahbm_chip(), spec);
        EXPECT_EQ(both.layers_differ, "") << name_of(kernel) << " " << forward << logged;
        EXPECT_EQ(both.ticks, one.ticks) << name_of(kernel);
        EXPECT_EQ(both.sends_total, one.sends_total) << name_of(kernel);
      }
    }
  }
}

TEST(Layers, AreEqualOnRandomChips) {
  testing::RandomCases cases(77);
  for (int i = 0; i < 200; ++i) {
    testing::Case one = cases.next_of_any_kernel();
    OpLog log;
    one.spec.layers = 2;
    if (i % 2 == 0) one.spec.log = &log;
    EXPECT_EQ(run(one.chip, one.spec).layers_differ, "") << i << " " << name_of(one.spec.kernel);
  }
}

// What ends at a layer's last tick must not bind the next one's first.
TEST(Layers, AreEqualWhereIssuesAndLatenciesCostNothing) {
  testing::RandomCases cases(78);
  for (int i = 0; i < 100; ++i) {
    testing::Case one = cases.next_of_any_kernel();
    OpLog log;
    one.chip.pe.issue = {};
    one.chip.pe.dma.latency_ps = 0;
    one.chip.pe.math.fill_cycles = one.chip.pe.gemm.fill_cycles = one.chip.pe.gemm.drain_cycles = 0;
    for (Link* link : {&one.chip.ipcq.pe, &one.chip.ipcq.cube, &one.chip.ipcq.sip}) link->hop_ps = 0;
    one.spec.layers = 2, one.spec.log = &log;
    EXPECT_EQ(run(one.chip, one.spec).layers_differ, "") << i << " " << name_of(one.spec.kernel);
  }
}

TEST(Layers, LeaveTheLogOfOne) {
  RunSpec spec;
  spec.context = 2000, spec.kv_heads = 4;
  OpLog one, two;
  spec.log = &one;
  run(ahbm_chip(), spec);
  spec.log = &two, spec.layers = 2;
  run(ahbm_chip(), spec);
  EXPECT_EQ(one.op, two.op);
  EXPECT_EQ(one.end, two.end);
}

// Values that are others when they have been asked for once: 600 tokens a layer.
class Drifting : public Inputs {
 public:
  void query(int head, int64_t row, std::span<uint16_t> out) const override { same_.query(head, row, out); }
  void key(int head, int64_t token, std::span<uint16_t> out) const override { same_.key(head, token, out); }
  void value(int head, int64_t token, std::span<uint16_t> out) const override {
    same_.value(head, token, out);
    if (++asked_ > 900) out[0] = 0x4080;  // 4
  }

 private:
  CounterInputs same_{3};
  mutable int asked_ = 0;
};

TEST(Layers, WithOtherOutputsAreFoundOut) {
  RunSpec spec;
  spec.context = 600, spec.kv_heads = 1, spec.cubes = 1, spec.layers = 2;
  spec.inputs = std::make_shared<CounterInputs>(3);
  EXPECT_EQ(run(ahbm_chip(), spec).layers_differ, "");
  spec.inputs = std::make_shared<Drifting>();
  EXPECT_EQ(run(ahbm_chip(), spec).layers_differ, "the outputs are not the same");
}

// One key more in the second layer.
TEST(Layers, OfAnotherLengthAreFoundOut) {
  const auto record = [](Machine& machine, int64_t tokens) {
    RunSpec spec;
    spec.context = tokens, spec.cubes = spec.pes = spec.kv_heads = 1;
    const tl::Launch launch = tl::make_launch({1, {4, 4}, {1, 1}}, spec);
    const tl::Part& part = launch.programs[0].parts[0];
    machine.launch(part.place, "decode", nullptr,
                   [&](tl::Tl<Processor>& tl) { return tl::start_kernel(tl, part.args); });
    machine.run();
    return machine.next_layer();
  };
  Chip chip = ahbm_chip();
  chip.sips = chip.pes = 1;
  Machine machine(chip, 0, 1, nullptr, true);
  const LayerRecord one = record(machine, 640), same = record(machine, 640), longer = record(machine, 641);
  EXPECT_EQ(difference(one, same), "");
  EXPECT_EQ(same.start, one.pes[0].ticks);
  EXPECT_NE(difference(same, longer).find("PE 0 took"), std::string::npos) << difference(same, longer);
}

}  // namespace
}  // namespace coprime::sim
