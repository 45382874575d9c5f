#include "collective/all_reduce/table.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "collective/all_reduce/slab_layout.h"

namespace coprime {
namespace {

constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB, kSlot = 84 * kMiB;

AllReduceCall bf16(int64_t bytes, std::string_view row = "") {
  return {.type = DType::kBF16, .elements = bytes / 2, .row = row};
}

std::string_view chosen(const AllReduceLimits& limits, const AllReduceCall& call) {
  return choose_all_reduce(limits, call).name();
}

TEST(AllReduceTable, two_ranks_take_every_size_up_to_48_mib) {
  const AllReduceLimits limits = all_reduce_limits(2, true, 0, kSlot);
  EXPECT_EQ(chosen(limits, bf16(16)), "push");
  EXPECT_EQ(chosen(limits, bf16(80 * kKiB)), "push");
  EXPECT_EQ(chosen(limits, bf16(2 * kMiB)), "push");
  EXPECT_EQ(chosen(limits, bf16(2 * kMiB + 16)), "flags");
  EXPECT_EQ(chosen(limits, bf16(49152 * kKiB)), "flags");
  EXPECT_EQ(chosen(limits, bf16(49152 * kKiB + 16)), "library");
}

TEST(AllReduceTable, three_ranks_stop_at_2_mib_until_the_slowest_link_is_known_to_be_fast) {
  const AllReduceLimits slow = all_reduce_limits(3, true, 12.9, kSlot), fast = all_reduce_limits(3, true, 13, kSlot);
  EXPECT_EQ(chosen(slow, bf16(80 * kKiB)), "push");
  EXPECT_EQ(chosen(slow, bf16(832 * kKiB)), "two_shot");
  EXPECT_EQ(chosen(slow, bf16(2 * kMiB)), "two_shot");
  EXPECT_EQ(chosen(slow, bf16(2 * kMiB + 16)), "library");
  EXPECT_EQ(chosen(fast, bf16(4 * kMiB)), "flags");
  EXPECT_EQ(chosen(fast, bf16(4 * kMiB + 16)), "library");
  EXPECT_EQ(chosen(slow, bf16(80 * kMiB, "wht6")), "library");
  EXPECT_EQ(chosen(fast, bf16(80 * kMiB, "wht6")), "wht6");
}

TEST(AllReduceTable, a_lossy_row_is_taken_only_when_asked_for_by_name) {
  const AllReduceLimits limits = all_reduce_limits(2, true, 15, kSlot);
  EXPECT_EQ(chosen(limits, bf16(80 * kMiB)), "library");
  EXPECT_EQ(chosen(limits, bf16(80 * kMiB, "wht6")), "wht6");
  EXPECT_EQ(chosen(limits, bf16(128 * kKiB, "wht6")), "wht6");
  EXPECT_EQ(chosen(limits, bf16(128 * kKiB - 128, "wht6")), "library");
  EXPECT_EQ(chosen(limits, bf16(128 * kKiB + 16, "wht6")), "library");
  AllReduceCall f32 = bf16(kMiB, "wht6");
  f32.type = DType::kF32;
  EXPECT_EQ(chosen(limits, f32), "library");
}

TEST(AllReduceTable, a_norm_is_fused_where_rows_and_type_allow_it) {
  const AllReduceLimits limits = all_reduce_limits(3, true, 0, 0);
  AllReduceCall call{.type = DType::kBF16, .elements = 8 * 5120, .norm_quant = true, .rows = 8, .columns = 5120};
  EXPECT_EQ(chosen(limits, call), "push_norm_quant");
  call.type = DType::kF32;
  EXPECT_EQ(chosen(limits, call), "push");
  call = {.type = DType::kBF16, .elements = 8 * 5124, .norm_quant = true, .rows = 8, .columns = 5124};
  EXPECT_EQ(chosen(limits, call), "push");
}

TEST(AllReduceTable, without_peer_access_all_goes_to_the_library_and_every_row_says_why) {
  const AllReduceChoice choice = choose_all_reduce(all_reduce_limits(3, false, 0, kSlot), bf16(80 * kKiB));
  EXPECT_EQ(choice.row, nullptr);
  ASSERT_EQ(choice.reasons.size(), all_reduce_rows().size());
  for (const std::string& reason : choice.reasons)
    EXPECT_NE(reason.find("does not reach each other's memory"), std::string::npos) << reason;
}

TEST(AllReduceTable, the_reasons_name_the_row_and_what_it_would_take) {
  const AllReduceChoice choice = choose_all_reduce(all_reduce_limits(3, true, 0, 0), bf16(3 * kMiB));
  const std::vector<std::string> expected = {
      "push_norm_quant: no norm follows",
      "push: 3145728 bytes; here it ends at 851967",
      "two_shot: 3145728 bytes; here it ends at 2097152",
      "flags: 3145728 bytes; here it ends at 2097152",
      "wht6: it loses bits, and the call does not ask for it by name",
  };
  EXPECT_EQ(choice.reasons, expected);
}

TEST(AllReduceTable, what_is_no_multiple_of_16_bytes_goes_to_the_library) {
  EXPECT_EQ(chosen(all_reduce_limits(2, true, 0, 0), bf16(80 * kKiB + 2)), "library");
  EXPECT_EQ(chosen(all_reduce_limits(2, true, 0, 0), bf16(0)), "library");
}

TEST(SlabLayout, three_ranks_with_slots_of_84_mib_take_the_seeds_381_mib) {
  const SlabLayout layout = make_slab_layout(3, kSlot, true);
  EXPECT_EQ(layout.payload_bytes(), 4 * kSlot + kSlot / 2 + kSlot / 32 + 4096);
  EXPECT_EQ((layout.payload_bytes() + kMiB / 2) / kMiB, 381);
  EXPECT_EQ(make_slab_layout(3, 2 * kMiB, false).payload_bytes(), 8 * kMiB);
}

TEST(SlabLayout, every_part_has_its_own_bytes) {
  for (int world = 2; world <= kMaxGpuRanks; ++world) {
    const SlabLayout layout = make_slab_layout(world, 3 * kMiB, true);
    int64_t end = kControlBytes;
    for (int half = 0; half < 2; ++half) {
      for (int sender = 0; sender < world - 1; ++sender) {
        EXPECT_EQ(layout.flag(half, sender, 0), end);
        end = layout.flag(half, sender, layout.flags_per_slot() - 1) + kFlagStride;
      }
    }
    EXPECT_GE(layout.payload_begin(), end);
    EXPECT_EQ(layout.payload_begin() % 4096, 0);
    end = layout.payload_begin();
    for (int half = 0; half < 2; ++half) {
      for (int sender = 0; sender < world - 1; ++sender) {
        EXPECT_EQ(layout.slot(half, sender), end);
        end += layout.slot_bytes;
      }
    }
    EXPECT_EQ(layout.own_codes(), end);
    EXPECT_EQ(layout.bytes(), layout.own_scales() + layout.slot_bytes / 32 + 4096);
  }
}

TEST(SlabLayout, every_peer_has_a_place_of_its_own) {
  for (int receiver = 0; receiver < 5; ++receiver) {
    int next = 0;
    for (int sender = 0; sender < 5; ++sender) {
      if (sender == receiver) continue;
      EXPECT_EQ(sender_index(sender, receiver), next++);
    }
  }
}

TEST(SlabLayout, refuses_what_it_cannot_lay_out) {
  EXPECT_THROW(make_slab_layout(1, kMiB, false), Error);
  EXPECT_THROW(make_slab_layout(9, kMiB, false), Error);
  EXPECT_THROW(make_slab_layout(2, kMiB + 1, false), Error);
  EXPECT_THROW(make_slab_layout(2, 0, false), Error);
  EXPECT_THROW(make_slab_layout(2, int64_t{1} << 40, true), Error);
}

}  // namespace
}  // namespace coprime
