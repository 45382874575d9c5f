// Properties of every plan, stated without the code that makes it, and the invariants' own failures.
#include "geometry/invariants.h"

#include <gtest/gtest.h>

#include <map>

#include "geometry/test_shapes.h"

namespace coprime {
namespace {

const int kHeadCounts[][2] = {{1, 1},   {6, 2},  {7, 7},  {9, 3},   {14, 2}, {15, 5},
                              {16, 16}, {24, 4}, {28, 4}, {40, 10}, {64, 8}};
const int kLinearCounts[][2] = {{1, 1}, {4, 12}, {16, 48}, {3, 6}, {5, 20}};

// Every plan of a grid of shapes, rank counts, paddings and modes.
template <class F>
void for_each_plan(F&& visit) {
  int which = 0;
  for (const auto& heads : kHeadCounts) {
    const auto& linear = kLinearCounts[which++ % 5];
    const ModelShape shape =
        hybrid_shape({heads[0], heads[1], 8, 100 + 37 * which, 331 + which, 104, 4}, {linear[0], linear[1], 6, 10, 4});
    for (int ranks = 1; ranks <= 16; ++ranks) {
      for (int pad_for : {0, 1, 3, 16}) {
        for (bool exact : {false, true}) {
          for (Dummies dummies : {Dummies::kSkipped, Dummies::kHeld}) {
            visit(ShardPlan(shape, {.ranks = ranks, .pad_for = pad_for, .exact = exact, .dummies = dummies}));
          }
        }
      }
    }
  }
}

constexpr Axis kAllAxes[] = {Axis::kHidden, Axis::kQuery,       Axis::kQueryOut, Axis::kKv,        Axis::kIntermediate,
                             Axis::kVocab,  Axis::kConvolution, Axis::kValueDim, Axis::kValueHeads};

TEST(PlanProperties, every_real_element_is_held_once_or_as_often_as_kv_heads_are_copied) {
  for_each_plan([](const ShardPlan& plan) {
    for (Axis axis : kAllAxes) {
      std::vector<int> holders(static_cast<size_t>(plan.real_size(axis)), 0);
      for (int rank = 0; rank < plan.ranks(); ++rank) {
        for (const Span& span : plan.axis_map(axis, rank).real) {
          for (int64_t i = 0; i < span.count; ++i) ++holders.at(static_cast<size_t>(span.global + i));
        }
      }
      const int expected = axis == Axis::kKv ? plan.kv_copies() : 1;
      for (int count : holders)
        ASSERT_EQ(count, expected) << "axis " << static_cast<int>(axis) << " of " << plan.ranks();
    }
  });
}

TEST(PlanProperties, local_places_ascend_without_overlap_and_skipped_dummies_leave_no_gap) {
  for_each_plan([](const ShardPlan& plan) {
    for (Axis axis : kAllAxes) {
      const int64_t extent0 = plan.axis_map(axis, 0).extent;
      for (int rank = 0; rank < plan.ranks(); ++rank) {
        const AxisMap map = plan.axis_map(axis, rank);
        int64_t end = 0;
        for (const Span& span : map.real) {
          ASSERT_GE(span.local, end);
          end = span.local + span.count;
        }
        ASSERT_LE(end, map.extent);
        if (plan.options().dummies == Dummies::kHeld) {
          ASSERT_EQ(map.extent, extent0);
        } else {
          ASSERT_EQ(map.extent, map.real_count());
        }
      }
    }
  });
}

TEST(PlanProperties, a_query_head_finds_the_kv_head_that_it_was_trained_with_on_its_own_rank) {
  for_each_plan([](const ShardPlan& plan) {
    const ModelShape& shape = plan.shape();
    for (int rank = 0; rank < plan.ranks(); ++rank) {
      const Counts local = plan.local(rank);
      std::map<int64_t, int64_t> kv_at;  // local KV head -> global
      for (const Span& span : plan.axis_map(Axis::kKv, rank).real) {
        for (int64_t i = 0; i < span.count; i += 8) kv_at[(span.local + i) / 8] = (span.global + i) / 8;
      }
      for (const Span& span : plan.axis_map(Axis::kQueryOut, rank).real) {
        for (int64_t i = 0; i < span.count; i += 8) {
          const int64_t h = (span.local + i) / 8, global = (span.global + i) / 8;
          ASSERT_EQ(kv_at.at(h / (local.q_heads / local.kv_heads)), global / (shape.q_heads / shape.kv_heads));
        }
      }
    }
  });
}

TEST(PlanProperties, a_value_head_stands_on_the_rank_of_its_key_head) {
  for_each_plan([](const ShardPlan& plan) {
    const LinearAttentionShape& linear = plan.shape().linear;
    const int64_t ratio = linear.value_heads / linear.key_heads;
    for (int rank = 0; rank < plan.ranks(); ++rank) {
      const AxisMap sections = plan.axis_map(Axis::kConvolution, rank), values = plan.axis_map(Axis::kValueHeads, rank);
      ASSERT_EQ(sections.real.size(), values.real.size() * 3);
      if (values.real.empty()) continue;
      const int64_t first_key = sections.real[0].global / linear.key_dim;
      ASSERT_EQ(values.real[0].global, first_key * ratio);
      ASSERT_EQ(values.real[0].count, sections.real[0].count / linear.key_dim * ratio);
    }
  });
}

TEST(PlanProperties, shares_begin_at_whole_units) {
  for_each_plan([](const ShardPlan& plan) {
    for (int rank = 0; rank < plan.ranks(); ++rank) {
      const Span mlp = plan.intermediate_elements(rank), vocab = plan.vocab_rows(rank), hidden = plan.hidden_rows(rank);
      ASSERT_TRUE(mlp.count == 0 || mlp.global % 16 == 0);
      ASSERT_TRUE(vocab.count == 0 || vocab.global % 64 == 0);
      ASSERT_TRUE(hidden.count == 0 || hidden.global % 16 == 0);
    }
  });
}

class BrokenCounts : public testing::Test {
 protected:
  const ModelShape shape_ = qwen38_27b();
  const PlanOptions options_ = {.ranks = 3, .pad_for = 3, .mlp_unit = 64};
  Counts counts_ = {36, 6, 18, 54, 17472, 248448};
};
using BrokenCountsDeathTest = BrokenCounts;

TEST_F(BrokenCounts, sound_counts_pass) { check_counts(shape_, options_, counts_); }
TEST_F(BrokenCountsDeathTest, a_changed_gqa_aborts) {
  counts_.kv_heads = 12;  // 36/12: the drafter that accepted nothing
  EXPECT_DEATH(check_counts(shape_, options_, counts_), "GQA");
}
TEST_F(BrokenCountsDeathTest, a_changed_value_ratio_aborts) {
  counts_.linear_value_heads = 51;
  EXPECT_DEATH(check_counts(shape_, options_, counts_), "value heads per key head");
}
TEST_F(BrokenCountsDeathTest, heads_that_the_ranks_do_not_divide_abort) {
  counts_.kv_heads = 5, counts_.q_heads = 30;
  EXPECT_DEATH(check_counts(shape_, options_, counts_), "KV heads for 3 ranks");
}
TEST_F(BrokenCountsDeathTest, lost_heads_abort) {
  counts_.kv_heads = 3, counts_.q_heads = 18;
  EXPECT_DEATH(check_counts(shape_, options_, counts_), "3 < 4");
}
TEST_F(BrokenCountsDeathTest, an_mlp_between_units_aborts) {
  counts_.intermediate = 17424;
  EXPECT_DEATH(check_counts(shape_, options_, counts_), "units of 64");
}
TEST_F(BrokenCountsDeathTest, a_vocabulary_between_units_aborts) {
  counts_.vocab = 248320;
  EXPECT_DEATH(check_counts(shape_, options_, counts_), "vocabulary");
}
TEST_F(BrokenCountsDeathTest, padding_where_stock_divides_aborts) {
  PlanOptions two = options_;
  two.pad_for = 2;
  EXPECT_DEATH(check_counts(shape_, two, counts_), "4 before");
}

// Query heads 6..11 and KV head 1 of the 27B (GQA 6, heads of 256).
TEST(LocalHeads, sound_ones_pass) {
  check_heads(qwen38_27b(), {6, 1}, {{{6 * 256, 0, 6 * 256}}, 6 * 256}, {{{256, 0, 256}}, 256});
  check_heads(qwen38_27b(), {0, 0}, {}, {});
}
TEST(LocalHeadsDeathTest, a_kv_head_of_other_queries_aborts) {
  EXPECT_DEATH(check_heads(qwen38_27b(), {6, 1}, {{{6 * 256, 0, 6 * 256}}, 6 * 256}, {{{512, 0, 256}}, 256}),
               "query head 6 reads KV head 2");
}
TEST(LocalHeadsDeathTest, a_local_gqa_that_remaps_heads_aborts) {
  EXPECT_DEATH(check_heads(qwen38_27b(), {6, 2}, {{{6 * 256, 0, 6 * 256}}, 6 * 256}, {{{256, 0, 512}}, 512}),
               "query head 9 reads KV head 2");
}
TEST(LocalHeadsDeathTest, queries_without_their_kv_head_abort) {
  EXPECT_DEATH(check_heads(qwen38_27b(), {6, 0}, {{{6 * 256, 0, 6 * 256}}, 6 * 256}, {}), "6 query heads, 0 KV heads");
}

// Every plan is held to them when it is made.
TEST(PlanDeathTest, a_shape_that_rotates_more_than_a_head_aborts) {
  ModelShape shape = qwen38_27b();
  shape.rope.rotary_dim = 512;
  EXPECT_DEATH(ShardPlan(shape, {.ranks = 3}), "512 of 256 rotated");
}

TEST(Shares, sound_ones_pass) {
  check_shares("x", std::vector<AxisMap>{{{{0, 0, 4}}, 4}, {{{4, 0, 2}}, 4}, {{}, 4}}, 6, 1, true);
  check_shares("x", std::vector<AxisMap>{{{{0, 0, 4}}, 4}, {{{0, 0, 4}}, 4}, {{{4, 0, 4}}, 4}, {{{4, 0, 4}}, 4}}, 8, 2,
               true);
}
TEST(SharesDeathTest, an_element_that_nobody_holds_aborts) {
  EXPECT_DEATH(check_shares("x", std::vector<AxisMap>{{{{0, 0, 4}}, 4}, {{{5, 0, 1}}, 4}}, 6, 1, true), "starts at 5");
}
TEST(SharesDeathTest, an_element_held_twice_aborts) {
  EXPECT_DEATH(check_shares("x", std::vector<AxisMap>{{{{0, 0, 4}}, 4}, {{{3, 0, 3}}, 4}}, 6, 1, true), "starts at 3");
}
TEST(SharesDeathTest, a_missing_end_aborts) {
  EXPECT_DEATH(check_shares("x", std::vector<AxisMap>{{{{0, 0, 4}}, 4}, {{{4, 0, 1}}, 4}}, 6, 1, true), "5 of 6");
}
TEST(SharesDeathTest, a_dummy_before_the_end_aborts) {
  EXPECT_DEATH(check_shares("x", std::vector<AxisMap>{{{{0, 0, 4}}, 4}, {{}, 4}, {{{4, 0, 2}}, 4}}, 6, 1, true),
               "starts at 6");
}
TEST(SharesDeathTest, a_missing_copy_aborts) {
  EXPECT_DEATH(
      check_shares("x", std::vector<AxisMap>{{{{0, 0, 4}}, 4}, {{{0, 0, 4}}, 4}, {{{4, 0, 4}}, 4}}, 8, 2, true),
      "1 copies");
}
TEST(SharesDeathTest, held_shares_of_two_sizes_abort) {
  EXPECT_DEATH(check_shares("x", std::vector<AxisMap>{{{{0, 0, 4}}, 4}, {{{4, 0, 2}}, 2}}, 6, 1, true), "extent 2");
}

}  // namespace
}  // namespace coprime
