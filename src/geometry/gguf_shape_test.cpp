// Shapes from the metadata of GGUF files, what is refused, and where a rank's part stands in such a file.
#include "geometry/gguf_shape.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "geometry/file_order.h"
#include "geometry/held_columns.h"
#include "gguf/test_files.h"

namespace coprime {
namespace {

class GgufShapes : public testing::Test {
 protected:
  // One key of the sound file replaced, or left out.
  static GgufBuilder sound(const std::string& arch, const std::string& without = "") {
    GgufBuilder file;
    file.text("general.architecture", arch).u32(arch + ".block_count", 9).u32(arch + ".context_length", 512);
    file.u32(arch + ".embedding_length", 96).u32(arch + ".feed_forward_length", 136).u32(arch + ".vocab_size", 331);
    file.u32(arch + ".attention.head_count", 6).u32(arch + ".attention.head_count_kv", 2);
    file.f32(arch + ".attention.layer_norm_rms_epsilon", 1e-5f).f32(arch + ".rope.freq_base", 1e5f);
    if (arch == "qwen35") {
      file.u32("qwen35.attention.key_length", 32).u32("qwen35.attention.value_length", 32);
      file.u32("qwen35.rope.dimension_count", 8).u32("qwen35.nextn_predict_layers", 1);
      file.u32("qwen35.ssm.conv_kernel", 4).u32("qwen35.ssm.state_size", 16).u32("qwen35.ssm.group_count", 4);
      file.u32("qwen35.ssm.time_step_rank", 12).u32("qwen35.ssm.inner_size", 288);
    }
    return file.without(without);
  }
  ModelShape shape(const GgufBuilder& file) {
    file.write(path_);
    return read_model_shape(path_);
  }
  void refused(const GgufBuilder& file, std::initializer_list<std::string> parts) {
    std::string message = "accepted";
    try {
      shape(file);
    } catch (const Error& error) {
      message = error.kind() == ErrorKind::kModel ? error.what() : "another kind";
    }
    for (const std::string& part : parts) EXPECT_NE(message.find(part), message.npos) << message << " lacks " << part;
  }

  const MemoryFile file_;
  const std::filesystem::path path_ = file_.path();
};

TEST_F(GgufShapes, llama_is_read_and_its_head_is_tied_without_an_output) {
  const ModelShape s = shape(sound("llama"));
  EXPECT_EQ(s.container, Container::kGguf);
  EXPECT_EQ(s.architecture, Architecture::kLlama);
  EXPECT_EQ(s.layers, 9);
  EXPECT_EQ(s.hidden, 96);
  EXPECT_EQ(s.intermediate, 136);
  EXPECT_EQ(s.vocab, 331);
  EXPECT_EQ(s.max_positions, 512);
  EXPECT_EQ(s.q_heads, 6);
  EXPECT_EQ(s.kv_heads, 2);
  EXPECT_EQ(s.head_dim, 16);
  EXPECT_EQ(s.rms_eps, 1e-5f);
  EXPECT_EQ(s.rope.theta, 1e5);
  EXPECT_EQ(s.rope.rotary_dim, 16);
  EXPECT_EQ(s.mlp_unit, 32);
  EXPECT_TRUE(s.tied_head);
  EXPECT_FALSE(s.qkv_bias || s.qk_norm || s.gated_attention || s.norm_plus_one || s.negative_decay);
  EXPECT_FALSE(shape(sound("llama").tensor("output.weight", {1}, 0, "1234")).tied_head);
}

TEST_F(GgufShapes, qwen_is_read_with_its_biases_norms_and_linear_layers) {
  EXPECT_TRUE(shape(sound("qwen2")).qkv_bias);
  EXPECT_TRUE(shape(sound("qwen3")).qk_norm);
  const ModelShape s = shape(sound("qwen35"));
  EXPECT_TRUE(s.gated_attention && s.qk_norm && s.negative_decay);
  EXPECT_FALSE(s.norm_plus_one);  // the file holds 1 + w
  EXPECT_EQ(s.layers, 8);
  EXPECT_EQ(s.mtp_layers, 1);
  EXPECT_EQ(s.head_dim, 32);
  EXPECT_EQ(s.rope.rotary_dim, 8);
  EXPECT_EQ(s.linear.key_heads, 4);
  EXPECT_EQ(s.linear.value_heads, 12);
  EXPECT_EQ(s.linear.key_dim, 16);
  EXPECT_EQ(s.linear.value_dim, 24);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(s.layer_kinds[i] == LayerKind::kFullAttention, i % 4 == 3) << i;
  const ModelShape flags =
      shape(sound("qwen35").integers("qwen35.attention.recurrent_layers", {0, 1, 1, 0, 1, 1, 1, 1, 0}));
  EXPECT_EQ(flags.layer_kinds[0], LayerKind::kFullAttention);
  EXPECT_EQ(flags.layer_kinds[3], LayerKind::kFullAttention);
  EXPECT_EQ(flags.layer_kinds[7], LayerKind::kLinearAttention);
}

TEST_F(GgufShapes, frequencies_are_divided_by_the_files_tensor) {
  std::string divisors;
  for (int i = 0; i < 8; ++i) GgufBuilder::put(&divisors, static_cast<float>(i + 1));
  const ModelShape plain = shape(sound("llama")),
                   scaled = shape(sound("llama").tensor("rope_freqs.weight", {8}, 0, divisors));
  const auto before = rope_frequencies(plain.rope), after = rope_frequencies(scaled.rope);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(after[i], before[i] / static_cast<float>(i + 1));
  EXPECT_NE(ShardPlan(plain, {}).hash(), ShardPlan(scaled, {}).hash());
  refused(sound("llama").tensor("rope_freqs.weight", {4}, 0, divisors.substr(16)), {"[4]; expected F32 of shape [8]"});
  refused(sound("llama").tensor("rope_freqs.weight", {8}, 0, std::string(32, '\0')), {"rope_freqs.weight holds 0"});
}

TEST_F(GgufShapes, what_the_decoders_do_not_compute_is_refused_by_name) {
  refused(sound("gemma3"), {"general.architecture is \"gemma3\"", "supported: one of llama, qwen2, qwen3, qwen35"});
  refused(sound("llama", "general.architecture"), {"general.architecture is missing"});
  refused(sound("llama").text("general.type", "mmproj"), {"general.type is \"mmproj\"", "the model's own file"});
  refused(sound("llama").u32("split.count", 3), {"split.count is 3", "--merge"});
  refused(sound("llama").u32("llama.expert_count", 8), {"llama.expert_count is 8", "dense MLPs"});
  refused(sound("llama").f32("llama.logit_scale", 0.5f), {"llama.logit_scale is 0.5", "logits as they are"});
  refused(sound("qwen3").u32("qwen3.attention.sliding_window", 64), {"sliding_window is 64"});
  refused(sound("llama").text("llama.rope.scaling.type", "yarn"), {"scaling.type is \"yarn\"", "supported: none"});
  refused(sound("llama").boolean("llama.attention.causal", false), {"causal attention"});
  refused(sound("llama").u32("llama.attention.value_length", 8), {"value_length is 8 with keys of 16"});
  refused(sound("llama").u32("llama.rope.dimension_count", 8), {"dimension_count is 8 with heads of 16"});
}

TEST_F(GgufShapes, keys_that_are_missing_or_wrong_are_named) {
  for (const char* key : {"block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size",
                          "attention.head_count", "attention.layer_norm_rms_epsilon"}) {
    const std::string name = std::string("llama.") + key;
    refused(sound("llama", name), {name + " is missing"});
    refused(sound("llama", name).text(name, "many"), {name + " is the string \"many\""});
    refused(sound("llama", name).u32(name, 0), {name + " is 0"});
    refused(sound("llama", name).scalar(name, GgufType::kI64, INT64_MIN), {name + " is -9"});
  }
  for (const char* key :
       {"ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.time_step_rank", "ssm.inner_size"})
    refused(sound("qwen35", std::string("qwen35.") + key), {std::string(key) + " is missing"});
  refused(sound("llama", "llama.attention.head_count_kv").u32("llama.attention.head_count_kv", 4),
          {"head_count_kv is 4 with 6 query heads"});
  refused(sound("llama", "llama.embedding_length").u32("llama.embedding_length", 97), {"key_length is missing"});
  refused(sound("qwen35", "qwen35.ssm.inner_size").u32("qwen35.ssm.inner_size", 290), {"ssm.inner_size is 290"});
  refused(sound("qwen35").integers("qwen35.attention.recurrent_layers", {1, 0}), {"has 2 entries"});
  refused(sound("llama").texts("tokenizer.ggml.tokens", {"a", "b"}), {"vocab_size is 331", "has 2 entries"});
  EXPECT_EQ(shape(sound("llama", "llama.vocab_size").texts("tokenizer.ggml.tokens", {"a", "b"})).vocab, 2);
}

const Rule& rule_of(const ShardPlan& plan, TensorId id) { return *std::ranges::find(plan.rules(), id, &Rule::id); }

TEST_F(GgufShapes, names_and_orders_are_those_of_the_file) {
  const ShardPlan llama(shape(sound("llama")), {}), qwen(shape(sound("qwen35")), {});
  EXPECT_EQ(llama.tensor_name(rule_of(llama, TensorId::kEmbedding), -1), "token_embd.weight");
  EXPECT_EQ(llama.tensor_name(rule_of(llama, TensorId::kPostNorm), 8), "blk.8.ffn_norm.weight");
  EXPECT_EQ(qwen.tensor_name(rule_of(qwen, TensorId::kPostNorm), 0), "blk.0.post_attention_norm.weight");
  EXPECT_EQ(qwen.tensor_name(rule_of(qwen, TensorId::kALog), 0), "blk.0.ssm_a");
  EXPECT_EQ(rule_of(qwen, TensorId::kConv).shape, (std::vector<int64_t>{2 * 64 + 288, 4}));

  // The model's row h d + i d/2 + j is the file's h d + 2 j + i, of q and k alone.
  const Rule& q = rule_of(llama, TensorId::kQ);
  EXPECT_EQ(file_position(llama.shape(), q, q.row_order, 16 + 3), 16 + 6);
  EXPECT_EQ(file_position(llama.shape(), q, q.row_order, 16 + 8 + 3), 16 + 7);
  EXPECT_EQ(rule_of(llama, TensorId::kV).row_order, FileOrder::kModel);
  EXPECT_EQ(rule_of(qwen, TensorId::kQ).row_order, FileOrder::kModel);

  // Value head 3 k + i is the file's 4 i + k: of v behind q and k, of heads, of columns.
  const Rule &qkv = rule_of(qwen, TensorId::kInQkv), &a = rule_of(qwen, TensorId::kInA),
             &out = rule_of(qwen, TensorId::kOut);
  EXPECT_EQ(file_position(qwen.shape(), qkv, qkv.row_order, 100), 100);
  EXPECT_EQ(file_position(qwen.shape(), qkv, qkv.row_order, 128 + 24 * 7 + 5), 128 + 24 * (4 + 2) + 5);
  EXPECT_EQ(file_position(qwen.shape(), a, a.row_order, 11), 11);
  EXPECT_EQ(file_position(qwen.shape(), a, a.row_order, 1), 4);
  EXPECT_EQ(file_position(qwen.shape(), out, out.column_order, 24 * 7 + 5), 24 * 6 + 5);

  // Every place once, over all ranks.
  for (int ranks : {1, 2, 3}) {
    const ShardPlan plan(shape(sound("qwen35")), {.ranks = ranks});
    for (TensorId id : {TensorId::kInQkv, TensorId::kInZ, TensorId::kALog, TensorId::kConv}) {
      std::vector<bool> seen(static_cast<size_t>(rule_of(plan, id).shape[0]));
      for (int rank = 0; rank < ranks; ++rank) {
        for (const Span& span : plan.file_row_map(rule_of(plan, id), rank).real) {
          for (int64_t i = 0; i < span.count; ++i) {
            EXPECT_FALSE(seen[static_cast<size_t>(span.global + i)]);
            seen[static_cast<size_t>(span.global + i)] = true;
          }
        }
      }
      EXPECT_EQ(std::ranges::count(seen, false), 0);
    }
  }
}

TEST(HeldColumns, a_block_that_straddles_two_shares_is_held_by_both) {
  const HeldColumns left = hold_whole_blocks({{{0, 0, 192}}, 192}, 256),
                    right = hold_whole_blocks({{{192, 0, 192}}, 192}, 256);
  EXPECT_EQ(left.held.real, (std::vector<Span>{{0, 0, 256}}));
  EXPECT_EQ(right.held.real, (std::vector<Span>{{0, 0, 512}}));
  EXPECT_EQ(right.held.extent, 512);
  ASSERT_TRUE(left.inputs && right.inputs);
  EXPECT_EQ(left.inputs->columns, 192);
  EXPECT_EQ(left.inputs->runs, (std::vector<ColumnRun>{{0, 0, 192}}));
  EXPECT_EQ(right.inputs->runs, (std::vector<ColumnRun>{{0, 192, 192}}));
}

TEST(HeldColumns, whole_blocks_stay_as_the_map_has_them) {
  const AxisMap owned{{{64, 0, 32}, {0, 64, 64}}, 128};  // in another order than the file, with a gap of fill
  const HeldColumns columns = hold_whole_blocks(owned, 32);
  EXPECT_EQ(columns.held.real, owned.real);
  EXPECT_EQ(columns.held.extent, 128);
  EXPECT_FALSE(columns.inputs);
  EXPECT_FALSE(hold_whole_blocks({{{5, 0, 3}}, 3}, 1).inputs);
  EXPECT_EQ(hold_whole_blocks({{}, 0}, 256).held.extent, 0);
}

TEST(HeldColumns, several_spans_share_blocks_and_keep_their_places) {
  // Heads of 24 in blocks of 32: columns 24..47 and 120..143 of the file, the second one first in x, dummies behind.
  const HeldColumns columns = hold_whole_blocks({{{120, 0, 24}, {24, 24, 24}}, 60}, 32);
  EXPECT_EQ(columns.held.real, (std::vector<Span>{{0, 0, 64}, {96, 64, 64}}));
  EXPECT_EQ(columns.held.extent, 128);
  ASSERT_TRUE(columns.inputs);
  EXPECT_EQ(columns.inputs->columns, 60);
  EXPECT_EQ(columns.inputs->runs, (std::vector<ColumnRun>{{24, 24, 24}, {0, 64 + 24, 24}}));
  // Two spans in one block hold it once.
  const HeldColumns once = hold_whole_blocks({{{0, 8, 8}, {16, 0, 8}}, 16}, 32);
  EXPECT_EQ(once.held.real, (std::vector<Span>{{0, 0, 32}}));
  EXPECT_EQ(once.inputs->runs, (std::vector<ColumnRun>{{8, 0, 8}, {0, 16, 8}}));
}

}  // namespace
}  // namespace coprime
