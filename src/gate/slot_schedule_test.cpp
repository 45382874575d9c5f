// Oracles: the worked examples of ds4's own schedules.
#include "gate/slot_schedule.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace coprime {
namespace {

template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(SlotSchedule, FlashFiresEverySlotAndWrapsAfter86Gates) {
  const SlotSchedule slots = deepseek_v4_flash_slots();
  EXPECT_EQ(slots.gates_per_token(), 86);
  EXPECT_EQ(slots.slot(1), 0);
  EXPECT_EQ(slots.slot(86), 85);
  EXPECT_EQ(slots.slot(87), 0);
  // The window at 80 covers 80..95, across the token's end.
  EXPECT_EQ(slots.slot(80), 79);
  EXPECT_EQ(slots.slot(95), 8);
  slots.check(0, 0, 1);
  slots.check(42, 1, 86);
  EXPECT_EQ(deepseek_v4_pro_slots().gates_per_token(), 122);
  EXPECT_EQ(deepseek_v4_pro_slots().slot(122), 121);
}

TEST(SlotSchedule, Glm52FiresTheFfnOfSparseLayersOnly) {
  const SlotSchedule slots = glm_5_2_slots(79, 3, 1);
  EXPECT_EQ(slots.gates_per_token(), 75);
  EXPECT_EQ(slots.slot(1), 7);
  EXPECT_EQ(slots.slot(75), 155);
  EXPECT_EQ(slots.slot(76), 7);
  slots.check(3, 1, 1);
}

TEST(SlotSchedule, Glm53FiresAttentionInSparseLayersOnly) {
  // Every fourth layer is sparse.
  const SlotSchedule slots = glm_5_3_slots(8, {0x88, 0});
  EXPECT_EQ(slots.gates_per_token(), 10);
  EXPECT_EQ(slots.slot(1), 1);
  EXPECT_EQ(slots.slot(3), 5);
  EXPECT_EQ(slots.slot(4), 6);
  EXPECT_EQ(slots.slot(5), 7);
  EXPECT_EQ(slots.slot(10), 15);
  EXPECT_EQ(slots.slot(11), 1);
}

// 45 layers, 87 gates: the first three layers fire ATTN only, the others both.
TEST(SlotSchedule, MaskOf87Gates) {
  SlotSchedule::Mask mask = {~uint64_t{0}, (uint64_t{1} << 26) - 1, 0};
  mask[0] &= ~uint64_t{0b101010};
  const SlotSchedule slots = SlotSchedule::masked(45, mask, 87);
  EXPECT_EQ(slots.slot(1), 0);
  EXPECT_EQ(slots.slot(2), 2);
  EXPECT_EQ(slots.slot(3), 4);
  EXPECT_EQ(slots.slot(4), 6);
  EXPECT_EQ(slots.slot(61), 63);
  EXPECT_EQ(slots.slot(62), 64);
  EXPECT_EQ(slots.slot(87), 89);
  EXPECT_EQ(slots.slot(88), 0);
  const GateSchedule entries = slots.entries(20480, 8);
  ASSERT_EQ(entries.size(), 87u);
  EXPECT_EQ(gate_text(entries[2]), "layer 2 gate ATTN");
  EXPECT_EQ(gate_text(entries[86]), "layer 44 gate FFN");
}

TEST(SlotSchedule, MaskUsesItsThirdWord) {
  const SlotSchedule slots = SlotSchedule::masked(96, {0, 1, uint64_t{1} << 63}, 2);
  EXPECT_EQ(slots.slot(1), 64);
  EXPECT_EQ(slots.slot(2), 191);
  EXPECT_EQ(slots.slot(3), 64);
}

TEST(SlotSchedule, AnotherGateThanTheSequenceSaysBreaksTheOrder) {
  EXPECT_EQ(error_of([] { deepseek_v4_flash_slots().check(3, 1, 7); }), "gate order broke: layer 3 gate 1 vs seq 7");
}

TEST(SlotSchedule, BadMasksAreRefused) {
  EXPECT_EQ(error_of([] {
              SlotSchedule::masked(4, {3, 0, 0}, 3);
            }),
            "a gate mask of 2 slots where a token has 3 gates: both must be the same, and not 0");
  EXPECT_EQ(error_of([] { SlotSchedule::masked(4, {}, 0); }),
            "a gate mask of 0 slots where a token has 0 gates: both must be the same, and not 0");
  EXPECT_EQ(error_of([] {
              SlotSchedule::masked(4, {0x100, 0, 0}, 1);
            }),
            "a gate mask with slot 8: 4 layers have slots 0 to 7");
  EXPECT_EQ(error_of([] { SlotSchedule::strided(4, 1, 2, 5); }),
            "a gate schedule of 5 gates from slot 1 in steps of 2 does not fit 4 layers of two slots");
  EXPECT_EQ(error_of([] { glm_5_3_slots(97, {1, 0}); }), "a gate mask of 97 layers: it has room for 96");
}

}  // namespace
}  // namespace coprime
