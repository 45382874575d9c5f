#include "plan/splits.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "geometry/shard_plan.h"
#include "plan/test_models.h"
#include "plan/test_shapes.h"

namespace coprime {
namespace {

TEST(PadCounts, for_three_ranks_are_the_known_ones_of_each_model) {
  for (const KnownModel& known : kKnownModels) {
    const PaddedCounts counts = pad_counts(numbers_of(known), plan_format("mxfp4"), 3);
    EXPECT_EQ(counts.q_heads, known.padded_q) << known.name;
    EXPECT_EQ(counts.kv_heads, known.padded_kv) << known.name;
    EXPECT_EQ(counts.vocab, known.padded_vocab) << known.name;
    const auto width = [&](std::string_view format) {
      const PaddedCounts padded = pad_counts(numbers_of(known), plan_format(format), 3);
      return numbers_of(known).has_experts() ? padded.expert_width : padded.width;
    };
    EXPECT_EQ(width("mxfp4"), known.width_64) << known.name;
    EXPECT_EQ(width("fp8-block"), known.width_128) << known.name;
  }
}

TEST(PadCounts, of_smollm2_on_two_ranks_are_12_and_4) {
  const PaddedCounts counts = pad_counts(numbers_of(named_shape("smollm2-135m")), plan_format("bf16"), 2);
  EXPECT_EQ(counts.q_heads, 12);
  EXPECT_EQ(counts.kv_heads, 4);
}

TEST(PadCounts, follow_the_format_s_unit) {
  const ModelNumbers qwen = numbers_of(named_shape("qwen3.8-27b"));
  EXPECT_EQ(pad_counts(qwen, plan_format("mxfp4"), 3).width, 17472);
  EXPECT_EQ(pad_counts(qwen, plan_format("bf16"), 3).width, 17424);
}

TEST(PadCounts, of_latent_attention_fill_whole_blocks_of_fp8) {
  const ModelNumbers kimi = numbers_of(named_shape("kimi-k2"));
  EXPECT_EQ(pad_counts(kimi, plan_format("bf16"), 6).q_heads, 66);
  EXPECT_EQ(pad_counts(kimi, plan_format("fp8-block"), 6).q_heads, 72);
}

TEST(PadCounts, of_a_drafter_have_the_target_s_kv_bytes_and_its_own_gqa) {
  ModelNumbers drafter{.hidden = 5120,
                       .vocab = 248320,
                       .layers = 5,
                       .attention_layers = 5,
                       .q_heads = 32,
                       .kv_heads = 8,
                       .head_dim = 128,
                       .q_rows = 128,
                       .mlp_layers = 5,
                       .intermediate = 17408};
  const auto counts = pad_drafter_counts(drafter, plan_format("fp8-block"), 3, 6 * 256);
  ASSERT_TRUE(counts);
  EXPECT_EQ(counts->q_heads, 48);
  EXPECT_EQ(counts->kv_heads, 12);
  EXPECT_EQ(counts->width, 17664);
  EXPECT_FALSE(pad_drafter_counts(drafter, plan_format("fp8-block"), 3, 7 * 256));
}

TEST(Splits, overlapping_heads_give_each_rank_the_known_query_heads_and_the_kv_heads_that_they_read) {
  for (const KnownModel& known : kKnownModels) {
    const Split split = all_splits(numbers_of(known), plan_format("bf16"), {.ranks = 3, .pad_for = 3})[3];
    ASSERT_EQ(split.kind, SplitKind::kOverlap);
    EXPECT_EQ(split.held[0].q_heads, known.overlapping_q) << known.name;
    int64_t all = 0;
    for (const RankLoad& load : split.held) all += load.q_heads;
    EXPECT_EQ(all, numbers_of(known).q_heads) << known.name;
  }
  const Split qwen =
      all_splits(numbers_of(named_shape("qwen3.8-27b")), plan_format("bf16"), {.ranks = 3, .pad_for = 3})[3];
  for (const RankLoad& load : qwen.held) EXPECT_EQ(load.kv_heads, 2);
}

TEST(Splits, copies_of_kv_heads_cut_their_groups) {
  const Split split =
      all_splits(numbers_of(named_shape("qwen3.8-27b")), plan_format("bf16"), {.ranks = 3, .pad_for = 3})[2];
  ASSERT_EQ(split.kind, SplitKind::kReplicate);
  for (const RankLoad& load : split.held) {
    EXPECT_EQ(load.q_heads, 8);
    EXPECT_EQ(load.kv_heads, 4);
  }
}

// What the planner counts is what the shard plan does, dummies left out and held, for every rank count.
TEST(Splits, padded_loads_are_the_shard_plan_s) {
  for (const ModelShape& shape : runnable_shapes()) {
    PlanFormat format = plan_format("bf16");
    format.mlp_unit = shape.mlp_unit;
    for (int ranks = 1; ranks <= 16; ++ranks) {
      for (const int pad_for : {ranks, 3}) {
        const std::vector<Split> splits = all_splits(numbers_of(shape), format, {.ranks = ranks, .pad_for = pad_for});
        const Split& split = splits[0];
        ASSERT_EQ(split.unfit, "");
        for (const Dummies dummies : {Dummies::kSkipped, Dummies::kHeld}) {
          const ShardPlan plan(shape, {.ranks = ranks, .pad_for = pad_for, .dummies = dummies});
          for (int rank = 0; rank < ranks; ++rank) {
            const RankLoad& load = (dummies == Dummies::kHeld ? split.padded : split.held)[static_cast<size_t>(rank)];
            const Counts local = plan.local(rank);
            const std::string where =
                fmt::format("{} rank {} of {}, for {}", shape.architecture_name, rank, ranks, pad_for);
            EXPECT_EQ(load.q_heads, local.q_heads) << where;
            EXPECT_EQ(load.kv_heads, local.kv_heads) << where;
            EXPECT_EQ(load.key_heads, local.linear_key_heads) << where;
            EXPECT_EQ(load.width, local.intermediate) << where;
            EXPECT_EQ(load.vocab, local.vocab) << where;
          }
        }
      }
    }
  }
}

TEST(Splits, every_head_and_column_is_held_once_where_nothing_is_copied) {
  for (const ModelShape& shape : runnable_shapes()) {
    const ModelNumbers model = numbers_of(shape);
    for (int64_t ranks = 2; ranks <= 9; ++ranks) {
      for (const Split& split :
           all_splits(model, plan_format("bf16"), {.ranks = ranks, .pad_for = ranks, .shares = {}})) {
        if (!split.unfit.empty() || split.kind == SplitKind::kPipeline) continue;
        RankLoad all;
        for (const RankLoad& load : split.held) {
          all.o_heads += load.o_heads;
          all.width += load.width;
          all.vocab += load.vocab;
        }
        if (split.kind != SplitKind::kDuplicate) {
          EXPECT_EQ(all.o_heads, model.q_heads) << split.name << " " << ranks;
        }
        EXPECT_EQ(all.width, model.intermediate) << split.name << " " << ranks;
        EXPECT_EQ(all.vocab, model.vocab) << split.name << " " << ranks;
      }
    }
  }
}

TEST(Splits, unequal_shares_follow_the_ranks_speed) {
  const std::vector<Split> splits = all_splits(numbers_of(named_shape("llama-3.1-8b")), plan_format("bf16"),
                                               {.ranks = 3, .pad_for = 3, .shares = {2, 1, 1}});
  const Split& split = splits[4];
  ASSERT_EQ(split.kind, SplitKind::kShares);
  EXPECT_EQ(split.held[0].kv_heads, 4);
  EXPECT_EQ(split.held[1].kv_heads, 2);
  EXPECT_EQ(split.held[0].width, 7168);
  EXPECT_EQ(split.held[2].q_heads, 8);
}

}  // namespace
}  // namespace coprime
