#include "model/gates.h"

#include <gtest/gtest.h>

namespace coprime {
namespace {

ModelShape hybrid() {
  ModelShape shape{.architecture = Architecture::kQwen35,
                   .hidden = 96,
                   .intermediate = 136,
                   .vocab = 331,
                   .max_positions = 512,
                   .layers = 4,
                   .q_heads = 6,
                   .kv_heads = 2,
                   .head_dim = 32,
                   .rms_eps = 1e-6f,
                   .qk_norm = true,
                   .gated_attention = true,
                   .norm_plus_one = true};
  shape.architecture_name = "Qwen3_5ForCausalLM";
  shape.tensor_prefix = "model.";
  shape.rope.rotary_dim = 8;
  shape.layer_kinds = {LayerKind::kLinearAttention, LayerKind::kLinearAttention, LayerKind::kLinearAttention,
                       LayerKind::kFullAttention};
  shape.linear = {4, 12, 16, 24, 4};
  return shape;
}

TEST(Gates, are_the_embedding_and_two_a_layer) {
  const ShardPlan plan(hybrid(), {.ranks = 3});
  const GateSchedule schedule = make_decode_schedule(plan, 7);
  ASSERT_EQ(schedule.size(), 9u);
  EXPECT_EQ(schedule[0].kind, GateKind::kEmbedding);
  EXPECT_EQ(schedule[3].kind, GateKind::kAttention);
  EXPECT_EQ(schedule[4].kind, GateKind::kFfn);
  EXPECT_EQ(schedule[4].layer, 1);
  for (const GateEntry& entry : schedule) EXPECT_EQ(entry.row_bytes, 96 * 4);
  EXPECT_EQ(largest_slot_bytes(schedule), 96u * 4 * 7);
}

TEST(Gates, of_exact_mode_are_two_gathers_each_as_wide_as_the_widest_share) {
  const ShardPlan plan(hybrid(), {.ranks = 3, .exact = true});
  const GateSchedule schedule = make_decode_schedule(plan, 1);
  ASSERT_EQ(schedule.size(), 17u);
  EXPECT_EQ(schedule[1].kind, GateKind::kAttentionInput);
  EXPECT_EQ(schedule[1].row_bytes, 6 * 24 * 4);  // 4 key heads over 3 ranks: 2 of them, 6 value heads
  EXPECT_EQ(schedule[2].kind, GateKind::kAttentionOutput);
  EXPECT_EQ(schedule[2].row_bytes, 32 * 4);       // 96 rows in units of 16
  EXPECT_EQ(schedule[13].row_bytes, 3 * 32 * 4);  // the full layer: 2 KV heads over 3 ranks, 3 query heads each
}

TEST(Gates, gather_parts_cover_every_element_once) {
  for (int ranks = 1; ranks <= 16; ++ranks) {
    const ShardPlan plan(hybrid(), {.ranks = ranks, .exact = true});
    for (const auto span : {&ShardPlan::hidden_rows, &ShardPlan::query_elements, &ShardPlan::linear_value_elements,
                            &ShardPlan::intermediate_elements}) {
      int64_t next = 0;
      for (const GatherPart& part : gather_parts(plan, span)) {
        EXPECT_TRUE(part.count == 0 || part.first == next) << ranks;
        next += part.count;
      }
      EXPECT_TRUE(next == 96 || next == 192 || next == 288 || next == 136) << next;
    }
  }
}

}  // namespace
}  // namespace coprime
