// Whatever would change the mathematics is refused with its key, what was found and what is supported.
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "geometry/test_configs.h"

namespace coprime {
namespace {

std::string refusal(const std::string& text) {
  try {
    parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kModel);
    return error.what();
  }
  return "accepted";
}

void expect_refused(const std::string& text, std::initializer_list<std::string> parts) {
  const std::string message = refusal(text);
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << message << " lacks " << part;
}

TEST(Refusals, the_sound_configs_are_accepted) {
  for (const char* family : {"llama", "qwen2", "qwen3", "qwen35"}) EXPECT_EQ(refusal(config(family, {})), "accepted");
  EXPECT_EQ(refusal(wrapped({}, {})), "accepted");
}

TEST(Refusals, another_architecture) {
  expect_refused(config("llama", {{"architectures", R"(["GemmaForCausalLM"])"}}),
                 {"GemmaForCausalLM", "LlamaForCausalLM, Qwen2ForCausalLM", "Qwen3_5ForConditionalGeneration"});
  expect_refused(config("llama", {{"architectures", ""}}), {"architectures is missing"});
  expect_refused(config("llama", {{"architectures", "[]"}}), {"architectures is []"});
  expect_refused(config("llama", {{"architectures", "[7]"}}), {"architectures is [7]"});
  expect_refused(config("llama", {{"model_type", R"("mistral")"}}), {"model_type", "mistral", "llama"});
}

TEST(Refusals, rope_types_other_than_default_and_llama3) {
  for (const std::string type : {"yarn", "linear", "dynamic", "longrope", "mrope"}) {
    expect_refused(config("llama", {{"rope_scaling", R"({"type":")" + type + R"(","factor":4.0})"}}),
                   {"rope_scaling.type", type, "default, llama3"});
  }
  expect_refused(config("qwen3", {{"rope_parameters", R"({"rope_type":"yarn"})"}}),
                 {"rope_parameters.rope_type", "yarn"});
  // An old key that a new one would hide still asks for something.
  expect_refused(
      config("qwen3", {{"rope_scaling", R"({"type":"yarn"})"}, {"rope_parameters", R"({"rope_type":"default"})"}}),
      {"rope_scaling.type"});
  expect_refused(config("qwen3", {{"rope_parameters", R"({"full_attention":{"rope_type":"default"}})"}}),
                 {"rope_parameters.full_attention"});
}

TEST(Refusals, llama3_rope_that_is_incomplete_or_upside_down) {
  expect_refused(config("llama", {{"rope_scaling", R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0})"}}),
                 {"rope_scaling.high_freq_factor is missing"});
  expect_refused(
      config("llama", {{"rope_scaling", R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":4.0,)"
                                        R"("high_freq_factor":4.0,"original_max_position_embeddings":8192})"}}),
      {"high_freq_factor is 4", "more than"});
  expect_refused(config("llama", {{"rope_theta", "0"}}), {"rope_theta is 0"});
  expect_refused(config("llama", {{"rope_theta", "-1e4"}}), {"rope_theta is -10000"});
  expect_refused(config("llama", {{"partial_rotary_factor", "1.5"}}), {"partial_rotary_factor is 1.5"});
  expect_refused(config("llama", {{"partial_rotary_factor", "0.1"}}), {"1 elements of a head of 16"});
}

TEST(Refusals, sliding_windows) {
  expect_refused(config("qwen2", {{"use_sliding_window", "true"}}), {"use_sliding_window is true", "full attention"});
  expect_refused(
      config("qwen2", {{"layer_types", R"(["full_attention","sliding_attention","full_attention","full_attention"])"}}),
      {"layer_types holds \"sliding_attention\"", "supported: full_attention"});
  EXPECT_EQ(refusal(config("qwen2", {{"use_sliding_window", "false"}, {"sliding_window", "4096"}})), "accepted");
}

TEST(Refusals, unknown_layer_types_and_lists_of_another_length) {
  expect_refused(
      config("llama", {{"layer_types", R"(["full_attention","full_attention","full_attention","linear_attention"])"}}),
      {"linear_attention"});
  expect_refused(config("qwen35", {{"layer_types", R"(["mamba","full_attention","full_attention","full_attention"])"}}),
                 {"mamba", "full_attention, linear_attention"});
  expect_refused(config("qwen35", {{"layer_types", R"(["full_attention"])"}}), {"layer_types has 1 entries", "4"});
  expect_refused(config("qwen35", {{"layer_types", R"("full_attention")"}}), {"layer_types", "a list"});
}

TEST(Refusals, biases_where_the_code_has_none) {
  for (const char* family : {"llama", "qwen3", "qwen35"}) {
    expect_refused(config(family, {{"attention_bias", "true"}}), {"attention_bias is true", "without biases"});
    expect_refused(config(family, {{"mlp_bias", "true"}}), {"mlp_bias is true", "without biases"});
  }
  EXPECT_EQ(refusal(config("qwen2", {{"attention_bias", "true"}})), "accepted");  // always there
}

TEST(Refusals, another_hidden_act) {
  for (const std::string act : {"gelu", "relu", "gelu_pytorch_tanh"}) {
    expect_refused(config("llama", {{"hidden_act", '"' + act + '"'}}), {"hidden_act is \"" + act, "supported: silu"});
  }
  expect_refused(wrapped({}, {{"hidden_act", R"("gelu")"}}), {"text_config.hidden_act"});
}

TEST(Refusals, an_embedded_quantization_config_of_another_scheme) {
  expect_refused(config("llama", {{"quantization_config", R"({"quant_method":"gptq"})"}}),
                 {"quantization_config.quant_method is gptq", "MXFP4"});
  expect_refused(wrapped({}, {{"quantization_config", R"({"quant_method":"awq"})"}}),
                 {"text_config.quantization_config"});
  expect_refused(wrapped({{"quantization_config", R"({"quant_method":"awq"})"}}, {}),
                 {"config.json: quantization_config"});
  EXPECT_EQ(refusal(config("llama", {{"quantization_config", "null"}})), "accepted");
}

TEST(Refusals, attention_without_its_output_gate) {
  expect_refused(config("qwen35", {{"attn_output_gate", "false"}}), {"attn_output_gate is false"});
  EXPECT_EQ(refusal(config("qwen35", {{"attn_output_gate", "true"}})), "accepted");
  expect_refused(config("qwen3", {{"attn_output_gate", "true"}}), {"attn_output_gate is true"});
  expect_refused(config("qwen35", {{"output_gate_type", R"("sigmoid")"}}), {"output_gate_type is \"sigmoid\""});
}

TEST(Refusals, other_keys_that_change_the_mathematics) {
  const std::pair<const char*, const char*> cases[] = {{"num_experts", "128"},
                                                       {"num_local_experts", "8"},
                                                       {"n_routed_experts", "64"},
                                                       {"attn_logit_softcapping", "50.0"},
                                                       {"final_logit_softcapping", "30.0"},
                                                       {"attention_multiplier", "0.5"},
                                                       {"query_pre_attn_scalar", "256"},
                                                       {"embedding_multiplier", "12.0"},
                                                       {"scale_emb", "12"},
                                                       {"residual_multiplier", "0.22"},
                                                       {"scale_depth", "1.4"},
                                                       {"logit_scale", "0.0625"},
                                                       {"logits_scaling", "8.0"},
                                                       {"attn_temperature_tuning", "true"},
                                                       {"alibi", "true"},
                                                       {"clip_qkv", "8.0"},
                                                       {"is_causal", "false"},
                                                       {"use_bidirectional_attention", "true"},
                                                       {"no_rope_layers", "[1,1,0,1]"},
                                                       {"scale_embedding", "true"},
                                                       {"hidden_activation", R"("gelu_pytorch_tanh")"}};
  for (const auto& [key, value] : cases) {
    expect_refused(config("llama", {{key, value}}), {std::string(key) + " is " + value, "not supported; supported: "});
  }
  EXPECT_EQ(refusal(config("llama", {{"num_experts", "0"}, {"logit_scale", "1.0"}, {"clip_qkv", "null"}})), "accepted");
}

TEST(Refusals, heads_that_do_not_fit_each_other) {
  expect_refused(config("llama", {{"num_key_value_heads", "4"}}),
                 {"num_key_value_heads is 4 with 6 query heads", "divisor"});
  expect_refused(config("llama", {{"head_dim", ""}, {"num_attention_heads", "10"}}),
                 {"head_dim is missing", "96", "10"});
  expect_refused(config("qwen35", {{"linear_num_value_heads", "10"}}),
                 {"linear_num_value_heads is 10 with 4 key heads"});
  expect_refused(config("qwen35", {{"linear_conv_kernel_dim", ""}}), {"linear_conv_kernel_dim is missing"});
  expect_refused(config("llama", {{"head_dim", "15"}}), {"15 elements of a head of 15", "even"});
}

TEST(Refusals, sizes_out_of_range_or_of_another_type) {
  for (const char* key : {"hidden_size", "intermediate_size", "vocab_size", "num_hidden_layers", "num_attention_heads",
                          "max_position_embeddings"}) {
    for (const std::string value :
         {"0", "-1", "9223372036854775807", "18446744073709551615", "1e3", "64.0", "\"64\"", "[64]", "true"}) {
      expect_refused(config("llama", {{key, value}}), {std::string(key) + " is ", "expected an integer in"});
    }
    expect_refused(config("llama", {{key, ""}}), {std::string(key) + " is missing"});
    expect_refused(config("llama", {{key, "null"}}), {std::string(key) + " is missing"});
  }
  expect_refused(config("llama", {{"hidden_size", "99999999999999999999999"}}), {"not JSON"});
  expect_refused(config("llama", {{"rms_norm_eps", "0"}}), {"rms_norm_eps is 0"});
  expect_refused(config("llama", {{"rms_norm_eps", "\"1e-5\""}}), {"rms_norm_eps is \"1e-5\"", "a number"});
  expect_refused(config("llama", {{"tie_word_embeddings", "1"}}), {"tie_word_embeddings is 1", "true or false"});
  expect_refused(
      config("llama", {{"num_attention_heads", "16384"}, {"num_key_value_heads", "1"}, {"head_dim", "16384"}}),
      {"head_dim is 16384"});
}

TEST(Refusals, texts_that_are_no_config) {
  const std::string sound = config("llama", {});
  expect_refused("", {"config.json: 0 bytes", "cut short"});
  for (size_t size : {1u, 2u, 40u}) expect_refused(sound.substr(0, sound.size() - size), {"not JSON"});
  expect_refused("[1]", {"expected an object"});
  expect_refused("{}", {"architectures is missing"});
  expect_refused(sound + "x", {"not JSON"});
  expect_refused("{\"a\xff\":1}", {"not JSON"});
  expect_refused(std::string(100, '[') + std::string(100, ']'), {"not JSON"});  // deeper than is read
  expect_refused(wrapped({{"text_config", ""}}, {}), {"text_config is missing"});
  expect_refused(wrapped({{"text_config", "[]"}}, {}), {"text_config is []", "an object"});
}

TEST(Refusals, a_key_that_stands_twice) {
  expect_refused(R"({"hidden_size":1,"hidden_size":2})", {"\"hidden_size\" stands twice"});
  expect_refused(R"({"hidden_size":1,"\u0068idden_size":2})", {"\"hidden_size\" stands twice"});
  expect_refused(wrapped({{"text_config", R"({"a":1,"a":1})"}}, {}), {"\"a\" stands twice"});
}

TEST(Refusals, a_directory_without_a_config) {
  try {
    read_model_shape(testing::TempDir() + "no such directory");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("config.json: No such file or directory"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace coprime
