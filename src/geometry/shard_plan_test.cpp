#include "geometry/shard_plan.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "geometry/drafter.h"
#include "geometry/test_shapes.h"

namespace coprime {
namespace {

const Rule* find_rule(const ShardPlan& plan, TensorId id) {
  for (const Rule& rule : plan.rules()) {
    if (rule.id == id) return &rule;
  }
  return nullptr;
}

template <class F>
std::string usage_error(F&& make) {
  try {
    make();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "";
}

// seeds: 36/6/18/54/17472/248448, per rank 12/2/6/18/5824/82816.
TEST(ShardPlan, the_27b_padded_for_three_has_the_published_counts) {
  const ShardPlan plan(qwen38_27b(), {.ranks = 3, .mlp_unit = 64, .dummies = Dummies::kHeld});
  EXPECT_EQ(plan.padded(), (Counts{36, 6, 18, 54, 17472, 248448}));
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(plan.local(rank), (Counts{12, 2, 6, 18, 5824, 82816}));
  EXPECT_EQ(plan.vocab_rows(2), (Span{165632, 0, 82688}));  // 128 dummies on the last rank
}

TEST(ShardPlan, the_27b_in_bf16_needs_narrower_mlp_padding) {
  EXPECT_EQ(ShardPlan(qwen38_27b(), {.ranks = 3}).padded().intermediate, 17424);
}

TEST(ShardPlan, the_27b_padded_tensors_have_the_published_sizes) {
  const ShardPlan plan(qwen38_27b(), {.ranks = 3, .mlp_unit = 64});
  EXPECT_EQ(plan.padded_size(Axis::kQuery), 18432);
  EXPECT_EQ(plan.padded_size(Axis::kKv), 1536);
  EXPECT_EQ(plan.padded_size(Axis::kQueryOut), 9216);
  EXPECT_EQ(plan.padded_size(Axis::kConvolution), 2304 + 2304 + 6912);
  EXPECT_EQ(plan.real_size(Axis::kConvolution), 10240);
  EXPECT_EQ(plan.padded_size(Axis::kValueDim), 6912);
  EXPECT_EQ(plan.padded_size(Axis::kValueHeads), 54);
}

// Gate B of the seed: heads padded for three, MLP stock, on two ranks: 18 query heads, 3 KV heads, 9 and 27 linear
// ones.
TEST(ShardPlan, a_geometry_padded_for_three_runs_on_two_and_on_one) {
  const PlanOptions options = {.ranks = 2, .pad_for = 3, .mlp_width = 17408, .mlp_unit = 64, .dummies = Dummies::kHeld};
  const ShardPlan two(qwen38_27b(), options);
  EXPECT_EQ(two.padded(), (Counts{36, 6, 18, 54, 17408, 248448}));
  EXPECT_EQ(two.local(0), (Counts{18, 3, 9, 27, 8704, 124224}));
  EXPECT_EQ(two.local(1), two.local(0));
  const ShardPlan one(qwen38_27b(), {.ranks = 1, .pad_for = 3, .mlp_unit = 64, .dummies = Dummies::kHeld});
  EXPECT_EQ(one.local(0), one.padded());
}

// Rule A at three ranks, from public configs: query and KV heads, MLP in units of 64 (BF16 counts differ), vocabulary.
TEST(ShardPlan, public_models_at_three_ranks_have_the_tabled_counts) {
  struct Row {
    const char* name;
    DenseCounts stock;
    int q_heads, kv_heads;
    int64_t mlp64, vocab;
  };
  const Row rows[] = {
      {"Llama-3.1-8B", {32, 8, 128, 14336, 128256}, 36, 9, 14400, 128256},
      {"Llama-3.1-70B", {64, 8, 128, 28672, 128256}, 72, 9, 28800, 128256},
      {"Llama-3.2-3B", {24, 8, 128, 8192, 128256}, 27, 9, 8256, 128256},
      {"Qwen2.5-0.5B", {14, 2, 64, 4864, 151936}, 21, 3, 4992, 152064},
      {"Qwen2-1.5B", {12, 2, 128, 8960, 151936}, 18, 3, 9024, 152064},
      {"Qwen2-7B", {28, 4, 128, 18944, 152064}, 42, 6, 19008, 152064},
      {"Qwen2.5-72B", {64, 8, 128, 29568, 152064}, 72, 9, 29568, 152064},
      {"Qwen3-8B", {32, 8, 128, 12288, 151936}, 36, 9, 12288, 152064},
      {"Qwen3-14B", {40, 8, 128, 17408, 151936}, 45, 9, 17472, 152064},
      {"Qwen3-32B", {64, 8, 128, 25600, 151936}, 72, 9, 25728, 152064},
      {"GLM-4.7", {96, 8, 128, 1536, 151552}, 108, 9, 1536, 151680},
      {"gpt-oss", {64, 8, 64, 2880, 201088}, 72, 9, 2880, 201216},
      {"Mistral-7B-v0.3", {32, 8, 128, 14336, 32768}, 36, 9, 14400, 32832},
      {"Mistral-Small-24B", {32, 8, 128, 32768, 131072}, 36, 9, 32832, 131136},
      {"Gemma-2-27B", {32, 16, 128, 36864, 256000}, 36, 18, 36864, 256128},
      {"Gemma-3-12B", {16, 8, 256, 15360, 262208}, 18, 9, 15360, 262272},
      {"Phi-4-14B", {40, 10, 128, 17920, 100352}, 48, 12, 18048, 100416},
      {"SmolLM2-135M", {9, 3, 64, 1536, 49152}, 9, 3, 1536, 49152},
      {"SmolLM2-360M", {15, 5, 64, 2560, 49152}, 18, 6, 2688, 49152},
      {"StarCoder2", {36, 4, 128, 18432, 49152}, 54, 6, 18432, 49152},
      {"MiniMax-M2", {48, 8, 128, 1536, 200064}, 54, 9, 1536, 200064},
  };
  for (const Row& row : rows) {
    const ShardPlan plan(dense_shape(row.stock), {.ranks = 3, .mlp_unit = 64});
    EXPECT_EQ(plan.padded(), (Counts{row.q_heads, row.kv_heads, 0, 0, row.mlp64, row.vocab})) << row.name;
  }
  const ShardPlan two(dense_shape({9, 3, 64, 1536, 49152}), {.ranks = 2});
  EXPECT_EQ(two.padded().q_heads, 12);
  EXPECT_EQ(two.padded().kv_heads, 4);
}

TEST(ShardPlan, what_divides_already_stays_stock) {
  for (int ranks : {1, 2, 4}) {
    const ShardPlan plan(dense_shape({32, 8, 64, 4096, 49152}), {.ranks = ranks, .dummies = Dummies::kHeld});
    EXPECT_EQ(plan.padded(), plan.stock()) << ranks;
    EXPECT_EQ(plan.local(ranks - 1), (Counts{32 / ranks, 8 / ranks, 0, 0, 4096 / ranks, 49152 / ranks})) << ranks;
  }
}

TEST(ShardPlan, kv_heads_are_copied_where_ranks_outnumber_them_and_divide_the_queries) {
  const ShardPlan plan(dense_shape({16, 2, 64, 4096, 49152}), {.ranks = 8});
  EXPECT_TRUE(plan.kv_replicated());
  EXPECT_EQ(plan.padded().q_heads, 16);
  EXPECT_EQ(plan.padded().kv_heads, 2);
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(plan.local(rank).q_heads, 2);
    EXPECT_EQ(plan.axis_map(Axis::kKv, rank).real, (std::vector<Span>{{rank / 4 * 64, 0, 64}}));
    EXPECT_EQ(plan.query_elements(rank), (Span{rank * 128, 0, 128}));
  }
}

TEST(ShardPlan, kv_heads_are_padded_where_the_ranks_do_not_divide_the_queries) {
  const ShardPlan plan(dense_shape({6, 2, 64, 4096, 49152}), {.ranks = 4});
  EXPECT_FALSE(plan.kv_replicated());
  EXPECT_EQ(plan.padded().q_heads, 12);
  EXPECT_EQ(plan.padded().kv_heads, 4);
}

TEST(ShardPlan, late_ranks_may_hold_nothing) {
  const ShardPlan plan(dense_shape({7, 7, 8, 48, 100}), {.ranks = 16, .pad_for = 5});
  EXPECT_EQ(plan.local(0), (Counts{1, 1, 0, 0, 16, 64}));
  EXPECT_EQ(plan.local(15), (Counts{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(plan.vocab_rows(15), (Span{100, 0, 0}));
}

TEST(ShardPlan, skipped_dummies_leave_no_gap_and_held_ones_do) {
  const ModelShape shape = hybrid_shape({6, 2, 32, 136, 331, 96, 4}, {4, 12, 16, 24, 4});
  const ShardPlan skipped(shape, {.ranks = 3});
  EXPECT_EQ(skipped.axis_map(Axis::kIntermediate, 2).extent, 136 - 96);
  EXPECT_EQ(skipped.local(2), (Counts{0, 0, 0, 0, 40, 331 - 256}));
  const ShardPlan held(shape, {.ranks = 3, .dummies = Dummies::kHeld});
  EXPECT_EQ(held.local(2), (Counts{3, 1, 2, 6, 48, 128}));
}

TEST(ShardPlan, sections_are_padded_each_at_its_own_end) {
  const ModelShape shape = hybrid_shape({6, 2, 32, 136, 331, 96, 4}, {4, 12, 16, 24, 4});
  const ShardPlan plan(shape, {.ranks = 3, .dummies = Dummies::kHeld});  // key heads 6, two a rank
  const AxisMap first = plan.axis_map(Axis::kConvolution, 0), last = plan.axis_map(Axis::kConvolution, 2);
  EXPECT_EQ(first.real, (std::vector<Span>{{0, 0, 32}, {64, 32, 32}, {128, 64, 144}}));
  EXPECT_EQ(first.extent, 208);
  EXPECT_TRUE(last.real.empty());
  EXPECT_EQ(last.extent, 208);
  const ShardPlan five(shape, {.ranks = 2, .pad_for = 5, .dummies = Dummies::kHeld});  // key heads 5: three and two
  EXPECT_EQ(five.axis_map(Axis::kConvolution, 1).real,
            (std::vector<Span>{{48, 0, 16}, {112, 48, 16}, {128 + 216, 96, 72}}));
}

TEST(ShardPlan, gated_queries_are_cut_in_units_of_query_and_gate) {
  const ModelShape shape = hybrid_shape({6, 2, 32, 136, 331, 96, 4}, {4, 12, 16, 24, 4});
  const ShardPlan plan(shape, {.ranks = 2});
  EXPECT_EQ(plan.row_map(*find_rule(plan, TensorId::kQ), 1).real, (std::vector<Span>{{3 * 64, 0, 3 * 64}}));
  EXPECT_EQ(plan.column_map(*find_rule(plan, TensorId::kO), 1).real, (std::vector<Span>{{3 * 32, 0, 3 * 32}}));
}

TEST(ShardPlan, exact_cuts_the_projections_back_by_rows_with_all_real_columns) {
  const ModelShape shape = hybrid_shape({6, 2, 32, 136, 331, 104, 4}, {4, 12, 16, 24, 4});
  for (Dummies dummies : {Dummies::kSkipped, Dummies::kHeld}) {
    const ShardPlan plan(shape, {.ranks = 3, .exact = true, .dummies = dummies});
    for (TensorId id : {TensorId::kO, TensorId::kOut, TensorId::kDown}) {
      const Rule& rule = *find_rule(plan, id);
      EXPECT_EQ(plan.column_map(rule, 0).real, (std::vector<Span>{{0, 0, rule.shape[1]}}));
      EXPECT_EQ(plan.column_map(rule, 0).extent, rule.shape[1]);
      EXPECT_EQ(plan.row_map(rule, 2).real, (std::vector<Span>{{96, 0, 8}}));
      EXPECT_EQ(plan.row_map(rule, 2).extent, dummies == Dummies::kHeld ? 48 : 8);
    }
    EXPECT_EQ(plan.hidden_rows(1), (Span{48, 0, 48}));
    EXPECT_EQ(plan.row_map(*find_rule(plan, TensorId::kGate), 1).real, (std::vector<Span>{{48, 0, 48}}));
  }
}

// Padded for three the 27B's rules match 1148 tensors in the seed's checkpoint of packed weights and scales; of the
// plain ones there are 16 full layers x 4 and 48 linear ones x 8, and 64 x 3 of the MLP.
TEST(ShardPlan, the_rules_expect_what_the_layer_list_predicts) {
  const ShardPlan plan(qwen38_27b(), {.ranks = 3});
  int cut = 0;
  for (const Rule& rule : plan.rules()) {
    if (rule.axis && *rule.axis != Axis::kVocab) cut += rule.expected;
  }
  EXPECT_EQ(cut, 16 * 4 + 48 * 8 + 64 * 3);
  EXPECT_EQ(find_rule(plan, TensorId::kConv)->expected, 48);
  EXPECT_EQ(find_rule(plan, TensorId::kQNorm)->expected, 16);
  EXPECT_EQ(find_rule(plan, TensorId::kConv)->shape, (std::vector<int64_t>{10240, 1, 4}));
  EXPECT_EQ(plan.column_map(*find_rule(plan, TensorId::kConv), 0).extent, 4);
  EXPECT_EQ(find_rule(plan, TensorId::kQBias), nullptr);
}

TEST(ShardPlan, norms_of_heads_and_layers_are_never_cut) {
  const ShardPlan plan(qwen38_27b(), {.ranks = 3});
  for (TensorId id : {TensorId::kFinalNorm, TensorId::kInputNorm, TensorId::kPostNorm, TensorId::kQNorm,
                      TensorId::kKNorm, TensorId::kLinearNorm}) {
    const Rule& rule = *find_rule(plan, id);
    EXPECT_EQ(rule.op, Operation::kReplicate);
    EXPECT_EQ(plan.row_map(rule, 2).real, (std::vector<Span>{{0, 0, rule.shape[0]}}));
  }
}

TEST(ShardPlan, names_are_those_of_the_wrapper) {
  const ShardPlan plan(qwen38_27b(), {.ranks = 3});
  const Rule &q = *find_rule(plan, TensorId::kQ), &head = *find_rule(plan, TensorId::kHead);
  EXPECT_TRUE(plan.applies(q, 3));
  EXPECT_FALSE(plan.applies(q, 2));
  EXPECT_FALSE(plan.applies(q, -1));
  EXPECT_EQ(plan.tensor_name(q, 3), "model.language_model.layers.3.self_attn.q_proj.weight");
  EXPECT_EQ(plan.tensor_name(head, -1), "lm_head.weight");
  EXPECT_EQ(plan.tensor_name(*find_rule(plan, TensorId::kEmbedding), -1), "model.language_model.embed_tokens.weight");
}

TEST(ShardPlan, a_tied_head_expects_no_head) {
  ModelShape shape = dense_shape({9, 3, 64, 1536, 49152});
  shape.tied_head = true;
  EXPECT_EQ(find_rule(ShardPlan(shape, {}), TensorId::kHead), nullptr);
}

TEST(ShardPlan, rank_counts_outside_1_to_16_are_refused) {
  const ModelShape shape = dense_shape({9, 3, 64, 1536, 49152});
  for (int ranks : {0, -1, 17}) {
    EXPECT_NE(usage_error([&] { ShardPlan(shape, {.ranks = ranks}); }), "") << ranks;
  }
  for (int pad_for : {-1, 17}) {
    EXPECT_NE(usage_error([&] { ShardPlan(shape, {.ranks = 2, .pad_for = pad_for}); }), "") << pad_for;
  }
}

TEST(ShardPlan, an_mlp_width_too_small_or_between_units_is_refused) {
  const ModelShape shape = dense_shape({9, 3, 64, 1536, 49152});
  EXPECT_NE(usage_error([&] { ShardPlan(shape, {.mlp_width = 1520}); }), "");
  EXPECT_NE(usage_error([&] { ShardPlan(shape, {.mlp_width = 1544}); }), "");
  EXPECT_NE(usage_error([&] { ShardPlan(shape, {.mlp_width = -16}); }), "");
  EXPECT_EQ(ShardPlan(shape, {.mlp_width = 1552}).padded().intermediate, 1552);
}

TEST(ShardPlan, the_hash_follows_everything_that_ranks_must_agree_on) {
  const ModelShape shape = qwen38_27b();
  std::set<uint64_t> hashes = {ShardPlan(shape, {.ranks = 3}).hash()};
  EXPECT_EQ(ShardPlan(shape, {.ranks = 3}).hash(), *hashes.begin());
  hashes.insert(ShardPlan(shape, {.ranks = 2}).hash());
  hashes.insert(ShardPlan(shape, {.ranks = 3, .pad_for = 2}).hash());
  hashes.insert(ShardPlan(shape, {.ranks = 3, .mlp_width = 17440}).hash());
  hashes.insert(ShardPlan(shape, {.ranks = 3, .exact = true}).hash());
  hashes.insert(ShardPlan(shape, {.ranks = 3, .dummies = Dummies::kHeld}).hash());
  ModelShape other = shape;
  other.rms_eps = 2e-6f;
  hashes.insert(ShardPlan(other, {.ranks = 3}).hash());
  other = shape;
  other.rope.theta = 1e6;
  hashes.insert(ShardPlan(other, {.ranks = 3}).hash());
  other = shape;
  std::swap(other.layer_kinds[2], other.layer_kinds[3]);
  hashes.insert(ShardPlan(other, {.ranks = 3}).hash());
  EXPECT_EQ(hashes.size(), 9u);
}

TEST(Drafter, is_padded_until_its_kv_bytes_equal_the_targets) {
  const ModelShape drafter = dense_shape({32, 8, 128, 17408, 248320, 5120, 5});
  const Counts counts = pad_drafter(drafter, 6 * 256, 3, 128);
  EXPECT_EQ(counts.q_heads, 48);
  EXPECT_EQ(counts.kv_heads, 12);
  EXPECT_EQ(counts.intermediate, 17664);
}

TEST(Drafter, stays_stock_beside_a_stock_target) {
  const ModelShape drafter = dense_shape({32, 8, 128, 17408, 248320, 5120, 5});
  EXPECT_EQ(pad_drafter(drafter, 4 * 256, 2, 128).kv_heads, 8);
  EXPECT_EQ(pad_drafter(drafter, 4 * 256, 2, 128).q_heads, 32);
}

TEST(Drafter, without_an_equal_count_is_refused) {
  const ModelShape drafter = dense_shape({32, 8, 128, 17408, 248320, 5120, 5});
  EXPECT_THROW(pad_drafter(drafter, 9 * 128, 2, 128), Error);       // 9 heads do not divide by two
  EXPECT_THROW(pad_drafter(drafter, 6 * 128, 3, 128), Error);       // fewer than the drafter's own
  EXPECT_THROW(pad_drafter(drafter, 6 * 128 + 64, 3, 128), Error);  // half a head
}

}  // namespace
}  // namespace coprime
