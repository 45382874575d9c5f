#include "plan/model_numbers.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "geometry/shard_plan.h"
#include "plan/load.h"
#include "plan/test_shapes.h"

namespace coprime {
namespace {

TEST(ModelNumbers, of_a_mixture_are_read_and_the_refusal_says_why_it_does_not_run) {
  const ModelNumbers model = parse_model_numbers(
      R"({"architectures":["DeepseekV3ForCausalLM"],"model_type":"deepseek_v3","hidden_size":7168,"intermediate_size":18432,
          "moe_intermediate_size":2048,"vocab_size":129280,"num_hidden_layers":61,"num_attention_heads":128,
          "num_key_value_heads":128,"q_lora_rank":1536,"kv_lora_rank":512,"qk_nope_head_dim":128,"qk_rope_head_dim":64,
          "v_head_dim":128,"n_routed_experts":256,"num_experts_per_tok":8,"n_shared_experts":1,"first_k_dense_replace":3,
          "max_position_embeddings":163840})",
      "config.json");
  EXPECT_NE(model.refusal.find("DeepseekV3ForCausalLM"), std::string::npos);
  EXPECT_TRUE(model.latent());
  EXPECT_EQ(model.mlp_layers, 3);
  EXPECT_EQ(model.expert_layers, 58);
  EXPECT_EQ(model.shared_width, 2048);
  const Parameters all = parameters_of(model, whole_load(model)), read = read_in_step(model, whole_load(model), 1);
  EXPECT_NEAR(all.all() / 1e9, 671, 2);    // as its makers say
  EXPECT_NEAR(read.all() / 1e9, 37, 1.5);  // likewise, of a token
  EXPECT_EQ(kv_elements(model, whole_load(model)), 61 * 576);
}

TEST(ModelNumbers, of_gpt_oss_take_the_experts_width_from_intermediate_size) {
  const ModelNumbers model = parse_model_numbers(
      R"({"architectures":["GptOssForCausalLM"],"model_type":"gpt_oss","hidden_size":2880,"intermediate_size":2880,
          "vocab_size":201088,"num_hidden_layers":36,"num_attention_heads":64,"num_key_value_heads":8,"head_dim":64,
          "num_local_experts":128,"num_experts_per_tok":4,"max_position_embeddings":131072,"tie_word_embeddings":false})",
      "config.json");
  EXPECT_EQ(model.expert_width, 2880);
  EXPECT_EQ(model.expert_layers, 36);
  EXPECT_NEAR(parameters_of(model, whole_load(model)).all() / 1e9, 116.8, 0.5);  // gpt-oss-120b's card
}

TEST(ModelNumbers, of_models_that_run_count_every_tensor_of_their_rules) {
  for (const ModelShape& shape : runnable_shapes()) {
    const ShardPlan plan(shape, {});
    double elements = 0;
    for (int layer = -1; layer < shape.layers; ++layer) {
      for (const Rule& rule : plan.rules()) {
        if (!plan.applies(rule, layer)) continue;
        double count = 1;
        for (const int64_t extent : rule.shape) count *= static_cast<double>(extent);
        elements += count;
      }
    }
    const ModelNumbers model = numbers_of(shape);
    EXPECT_EQ(model.refusal, "");
    EXPECT_EQ(parameters_of(model, whole_load(model)).all(), elements) << shape.architecture_name;
  }
}

// As their makers count them, in G.
TEST(ModelNumbers, of_named_shapes_add_up_to_the_models_sizes) {
  const std::vector<std::pair<std::string, double>> sizes = {
      {"llama-3.1-8b", 8.03},  {"qwen3.8-27b", 27},  {"qwen3-30b-a3b", 30.5}, {"qwen3-235b-a22b", 235},
      {"gpt-oss-120b", 116.8}, {"glm-4.5-air", 106}, {"starcoder2-7b", 7.17}, {"minimax-m2", 229},
      {"deepseek-v3", 671},    {"kimi-k2", 1026}};
  for (const auto& [name, size] : sizes) {
    const ModelNumbers model = numbers_of(named_shape(name));
    EXPECT_NEAR(parameters_of(model, whole_load(model)).all() / 1e9, size, 0.02 * size) << name;
  }
}

TEST(ModelNumbers, refuse_what_no_plan_can_be_made_of) {
  const auto refusal = [](std::string_view text) {
    try {
      parse_model_numbers(text, "config.json");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("read");
  };
  EXPECT_EQ(refusal("{}"), "config.json: hidden_size is missing; expected an integer in 1..1048576");
  EXPECT_EQ(refusal(R"({"hidden_size": "wide"})"),
            "config.json: hidden_size is \"wide\"; expected an integer in 1..1048576");
  EXPECT_EQ(refusal(R"({"hidden_size": 64, "vocab_size": 100, "num_attention_heads": 0})"),
            "config.json: num_attention_heads is 0; expected an integer in 1..16384");
  EXPECT_NE(refusal("not json").find("not JSON"), std::string::npos);
}

}  // namespace
}  // namespace coprime
