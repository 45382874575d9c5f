#include "geometry/model_shape.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "geometry/test_configs.h"

namespace coprime {
namespace {

ModelShape read(const std::string& path) { return read_model_shape(std::filesystem::path(COPRIME_SOURCE_DIR) / path); }

TEST(ModelShape, the_embedded_model_is_read_from_within_its_wrapper) {
  const ModelShape shape = read("models/mini-qwen35");
  EXPECT_EQ(shape.architecture, Architecture::kQwen35);
  EXPECT_EQ(shape.architecture_name, "Qwen3_5ForConditionalGeneration");
  EXPECT_EQ(shape.tensor_prefix, "model.language_model.");
  EXPECT_EQ(shape.hidden, 256);
  EXPECT_EQ(shape.intermediate, 544);
  EXPECT_EQ(shape.vocab, 1000);
  EXPECT_EQ(shape.max_positions, 4096);
  EXPECT_EQ(shape.q_heads, 24);
  EXPECT_EQ(shape.kv_heads, 4);
  EXPECT_EQ(shape.head_dim, 32);
  EXPECT_EQ(shape.rope.rotary_dim, 8);
  EXPECT_EQ(shape.linear.key_heads, 16);
  EXPECT_EQ(shape.linear.value_heads, 48);
  EXPECT_EQ(shape.linear.conv_taps, 4);
  EXPECT_EQ(shape.mtp_layers, 1);
  EXPECT_FALSE(shape.tied_head);
  EXPECT_TRUE(shape.qk_norm && shape.gated_attention && shape.norm_plus_one);
  ASSERT_EQ(shape.layer_kinds.size(), 8u);
  EXPECT_EQ(shape.layer_kinds[3], LayerKind::kFullAttention);
  EXPECT_EQ(shape.layer_kinds[4], LayerKind::kLinearAttention);
}

TEST(ModelShape, the_goldens_are_read) {
  const ModelShape llama = read("tests/goldens/llama-9q3kv-tied"), qwen2 = read("tests/goldens/qwen2-14q2kv-bias"),
                   hybrid = read("tests/goldens/qwen35-6q2kv-gdn4-12");
  EXPECT_TRUE(llama.tied_head);
  EXPECT_FALSE(llama.qkv_bias || llama.qk_norm || llama.gated_attention || llama.norm_plus_one);
  EXPECT_EQ(llama.rms_eps, 1e-5f);
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_EQ(qwen2.head_dim, 8);  // hidden 112 / 14
  EXPECT_EQ(hybrid.tensor_prefix, "model.");
  EXPECT_EQ(hybrid.rope.rotary_dim, 8);
  EXPECT_EQ(hybrid.linear.value_dim, 24);
}

TEST(ModelShape, head_size_is_fixed_before_heads_are_widened) {
  EXPECT_EQ(
      parse(config(
                "llama",
                {{"hidden_size", "576"}, {"num_attention_heads", "9"}, {"num_key_value_heads", "3"}, {"head_dim", ""}}))
          .head_dim,
      64);
  EXPECT_EQ(parse(config("qwen3", {{"head_dim", "128"}})).head_dim, 128);  // independent of hidden / heads
}

TEST(ModelShape, kv_heads_default_to_query_heads) {
  EXPECT_EQ(parse(config("llama", {{"num_key_value_heads", ""}})).kv_heads, 6);
}

TEST(ModelShape, both_generations_of_rope_keys_are_read_and_the_nested_one_wins) {
  EXPECT_EQ(parse(config("llama", {})).rope.theta, 10000);
  EXPECT_EQ(parse(config("llama", {{"rope_theta", "500000"}})).rope.theta, 500000);
  EXPECT_EQ(parse(config("llama", {{"rope_theta", "5e5"},
                                   {"rope_parameters", R"({"rope_type":"default","rope_theta":1000000.0})"}}))
                .rope.theta,
            1e6);
  EXPECT_EQ(parse(config("qwen35", {{"rope_parameters", R"({"rope_theta":1e7})"}})).rope.rotary_dim, 4);  // a quarter
  EXPECT_EQ(parse(config("qwen35", {{"partial_rotary_factor", "0.5"}})).rope.rotary_dim, 8);
  EXPECT_EQ(parse(config("qwen35",
                         {{"partial_rotary_factor", "0.5"}, {"rope_parameters", R"({"partial_rotary_factor":1.0})"}}))
                .rope.rotary_dim,
            16);
}

TEST(ModelShape, llama3_scaling_is_read_under_either_name_of_its_type) {
  for (const char* type : {"type", "rope_type"}) {
    const std::string scaling = std::string(R"({")") + type +
                                R"(":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
                                R"("original_max_position_embeddings":8192})";
    const Rope rope = parse(config("llama", {{"rope_scaling", scaling}, {"rope_theta", "500000.0"}})).rope;
    EXPECT_TRUE(rope.llama3);
    EXPECT_EQ(rope.factor, 8);
    EXPECT_EQ(rope.high_freq_factor, 4);
    EXPECT_EQ(rope.original_max_positions, 8192);
  }
}

TEST(ModelShape, mrope_of_text_is_the_plain_embedding) {
  EXPECT_FALSE(
      parse(config("qwen35", {{"rope_parameters", R"({"rope_type":"mrope","mrope_section":[1,1,0]})"}})).rope.llama3);
}

TEST(ModelShape, tied_heads_are_read_at_the_top_before_the_text_model) {
  EXPECT_TRUE(parse(wrapped({{"tie_word_embeddings", "true"}}, {{"tie_word_embeddings", "false"}})).tied_head);
  EXPECT_FALSE(parse(wrapped({{"tie_word_embeddings", "false"}}, {{"tie_word_embeddings", "true"}})).tied_head);
  EXPECT_TRUE(parse(wrapped({}, {{"tie_word_embeddings", "true"}})).tied_head);
  EXPECT_FALSE(parse(wrapped({}, {})).tied_head);
}

TEST(ModelShape, full_attention_interval_is_the_fallback_for_layer_types) {
  const ModelShape four = parse(config("qwen35", {{"layer_types", ""}}));
  EXPECT_EQ(four.layer_kinds, (std::vector{LayerKind::kLinearAttention, LayerKind::kLinearAttention,
                                           LayerKind::kLinearAttention, LayerKind::kFullAttention}));
  const ModelShape two = parse(config("qwen35", {{"layer_types", ""}, {"full_attention_interval", "2"}}));
  EXPECT_EQ(two.layer_kinds[1], LayerKind::kFullAttention);
}

// Reference: 1 / theta^(2i/d) in float with Python's double power; and Llama-3.1-8B's scaling of it, step by step.
TEST(RopeFrequencies, are_transformers_bits) {
  const std::vector<float> plain = rope_frequencies({.theta = 1e7, .rotary_dim = 64});
  ASSERT_EQ(plain.size(), 32u);
  EXPECT_EQ(plain[0], 1.0f);
  EXPECT_EQ(plain[1], 0x1.356656p-1f);
  EXPECT_EQ(plain[7], 0x1.e222eep-6f);
  EXPECT_EQ(plain[16], 0x1.4b96cp-12f);
  EXPECT_EQ(plain[31], 0x1.635e88p-23f);
}

TEST(RopeFrequencies, of_llama3_keep_short_waves_stretch_long_ones_and_blend_between) {
  const Rope rope = {.theta = 5e5,
                     .rotary_dim = 128,
                     .llama3 = true,
                     .factor = 8,
                     .low_freq_factor = 1,
                     .high_freq_factor = 4,
                     .original_max_positions = 8192};
  const std::vector<float> scaled = rope_frequencies(rope);
  ASSERT_EQ(scaled.size(), 64u);
  const std::pair<size_t, float> expected[] = {{0, 1.0f},
                                               {1, 0x1.a11582p-1f},
                                               {20, 0x1.0f5386p-6f},
                                               {28, 0x1.a4ee4p-9f},
                                               {29, 0x1.1bfa0cp-9f},
                                               {30, 0x1.67a23ap-10f},
                                               {33, 0x1.47e21p-12f},
                                               {35, 0x1.90d10cp-14f},
                                               {36, 0x1.46831ap-14f},
                                               {50, 0x1.280d96p-18f},
                                               {63, 0x1.4985fep-22f}};
  for (const auto& [i, value] : expected) EXPECT_EQ(scaled[i], value) << i;
}

// Bytes flipped, cut out, doubled: an Error or a shape, never a crash. A fixed seed and count keep it bounded.
TEST(ModelShape, damaged_configs_never_crash) {
  std::mt19937 random(1);
  const std::string sound[] = {config("llama", {{"rope_scaling", R"({"type":"llama3","factor":8})"}}),
                               config("qwen35", {}), wrapped({}, {})};
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = sound[i % 3];
    for (int edits = 1 + static_cast<int>(random() % 4); edits > 0 && !text.empty(); --edits) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), random() % 16));
          break;
        default:
          text[at] = "0123456789-{}[]\",:e."[random() % 20];
          break;
      }
    }
    try {
      parse(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kModel);
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      ++refused;
    }
  }
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace coprime
