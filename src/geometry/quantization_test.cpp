#include "geometry/quantization.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "geometry/shard_plan.h"
#include "geometry/test_configs.h"

namespace coprime {
namespace {

constexpr const char* kQuarkMxfp4 = R"({"quant_method":"quark","exclude":["lm_head","re:.*in_proj_[ab]$"],
  "global_quant_config":{"weight":{"dtype":"fp4","qscheme":"per_group","group_size":32,"ch_axis":-1,"is_dynamic":false,
    "scale_format":"e8m0"},"input_tensors":{"dtype":"fp4","is_dynamic":true}},
  "layer_quant_config":{"mtp.*":{"weight":{"dtype":"fp8_e4m3","qscheme":"per_channel","ch_axis":0},"input_tensors":null}},
  "export":{"pack_method":"reorder"}})";
constexpr const char* kFp8Block = R"({"quant_method":"fp8","fmt":"e4m3","activation_scheme":"dynamic",
  "weight_block_size":[128,128],"modules_to_not_convert":["model.layers.0.self_attn","lm_head"]})";

Quantization quantization(const std::string& text) {
  return parse(config("llama", {{"quantization_config", text}})).quantization;
}

std::string_view name_of(const Quantization& quantization, std::string_view module) {
  const StoredFormat* format = quantization.format_of(module);
  return format == nullptr ? "as it is" : format->name;
}

std::string refusal_of(const std::string& text) {
  try {
    quantization(text);
  } catch (const Error& error) {
    return error.kind() == ErrorKind::kModel ? error.what() : "wrong kind";
  }
  return "accepted";
}

TEST(Quantization, none_leaves_every_module_as_it_is) {
  for (const char* text : {"null", "{}"}) {
    EXPECT_TRUE(quantization(text).empty());
    EXPECT_EQ(quantization(text).format_of("lm_head"), nullptr);
  }
}

TEST(Quantization, quarks_layers_exclusions_and_expressions) {
  const Quantization quark = quantization(kQuarkMxfp4);
  EXPECT_EQ(name_of(quark, "model.layers.3.self_attn.q_proj"), "MXFP4 (Quark)");
  EXPECT_EQ(name_of(quark, "model.layers.0.linear_attn.in_proj_a"), "as it is");
  EXPECT_EQ(name_of(quark, "model.layers.0.linear_attn.in_proj_ab"), "MXFP4 (Quark)");
  EXPECT_EQ(name_of(quark, "lm_head"), "as it is");
  EXPECT_EQ(name_of(quark, "mtp.layers.0.mlp.up_proj"), "FP8 per channel");
}

TEST(Quantization, fp8_blocks_and_the_modules_that_lie_in_one_that_is_not_converted) {
  const Quantization fp8 = quantization(kFp8Block);
  EXPECT_EQ(name_of(fp8, "model.layers.0.mlp.up_proj"), "FP8 128x128 (weight_scale_inv)");
  EXPECT_EQ(name_of(fp8, "model.layers.0.self_attn.k_proj"), "as it is");
  EXPECT_EQ(name_of(fp8, "model.layers.10.self_attn.k_proj"), "FP8 128x128 (weight_scale_inv)");
}

TEST(Quantization, compressed_tensors_groups_name_modules_before_their_class) {
  const Quantization mixed = quantization(R"({"quant_method":"compressed-tensors","ignore":["lm_head"],"config_groups":{
    "group_0":{"targets":["Linear"],"weights":{"num_bits":4,"type":"float","strategy":"group","group_size":32}},
    "group_1":{"targets":["re:.*down_proj"],"weights":{"num_bits":8,"type":"float","strategy":"channel"}},
    "group_2":{"targets":["model.layers.1.mlp.up_proj"],"weights":{"num_bits":8,"type":"float","strategy":"block",
      "block_structure":[128,128]}}}})");
  EXPECT_EQ(name_of(mixed, "model.layers.1.mlp.gate_proj"), "MXFP4 (compressed-tensors)");
  EXPECT_EQ(name_of(mixed, "model.layers.1.mlp.down_proj"), "FP8 per channel");
  EXPECT_EQ(name_of(mixed, "model.layers.1.mlp.up_proj"), "FP8 128x128 (weight_scale)");
  EXPECT_EQ(name_of(mixed, "lm_head"), "as it is");
  EXPECT_EQ(name_of(quantization(R"({"quant_method":"mxfp4","modules_to_not_convert":["lm_head"]})"), "a.b"),
            "MXFP4 (blocks)");
}

TEST(Quantization, other_schemes_are_refused_by_key) {
  const auto quark = [](const std::string& weight) {
    return R"({"quant_method":"quark","global_quant_config":{"weight":)" + weight + "}}";
  };
  const auto tensors = [](const std::string& weights) {
    return R"({"quant_method":"compressed-tensors","config_groups":{"g":{"targets":["Linear"],"weights":)" + weights +
           "}}}";
  };
  const std::pair<std::string, std::string> cases[] = {
      {R"({"quant_method":"awq","bits":4})", "quantization_config.quant_method is awq"},
      {R"({"bits":4})", "quantization_config.quant_method is missing"},
      {R"({"quant_method":"fp8"})", "weight_block_size is missing"},
      {R"({"quant_method":"fp8","weight_block_size":[64,128]})", "weight_block_size is [64,128]"},
      {R"({"quant_method":"fp8","weight_block_size":[128,128],"fmt":"e5m2"})", "fmt is \"e5m2\""},
      {R"({"quant_method":"quark"})", "global_quant_config is missing"},
      {quark(R"({"dtype":"int4"})"), "global_quant_config.weight.dtype is \"int4\""},
      {quark(R"({"dtype":"fp8_e4m3","qscheme":"per_tensor"})"), "qscheme is \"per_tensor\""},
      {quark(R"({"dtype":"fp4","qscheme":"per_group","group_size":16,"scale_format":"e8m0"})"), "group_size is 16"},
      {tensors(R"({"num_bits":4,"type":"int","strategy":"group"})"), "weights.type is \"int\""},
      {tensors(R"({"num_bits":4,"type":"float","strategy":"tensor_group","group_size":16})"),
       "strategy is \"tensor_group\""},
      {tensors(R"({"num_bits":8,"type":"float","strategy":"tensor"})"), "strategy is \"tensor\""},
      {R"({"quant_method":"quark","exclude":["re:(a"],"global_quant_config":{}})", "no regular expression"},
      {R"({"quant_method":"quark","exclude":[7],"global_quant_config":{}})", "exclude holds 7"},
  };
  for (const auto& [text, message] : cases) {
    const std::string found = refusal_of(text);
    EXPECT_NE(found.find(message), std::string::npos) << text << ": " << found;
  }
}

TEST(Quantization, expressions_that_never_end_are_an_error) {
  const Quantization slow = quantization(R"({"quant_method":"mxfp4","modules_to_not_convert":["re:(a|aa)+[bc]"]})");
  EXPECT_THROW(slow.format_of(std::string(200, 'a')), Error);
}

TEST(Quantization, parts_have_the_shapes_of_exact_fractions) {
  const auto shape = [](const StoredPart& part, int64_t rows, int64_t columns) {
    return stored_shape(part, rows, columns, "t");
  };
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(shape(quark_mxfp4().codes, 12288, 5120), (Shape{12288, 2560}));
  EXPECT_EQ(shape(quark_mxfp4().scales, 12288, 5120), (Shape{12288, 160}));
  EXPECT_EQ(shape(fp8_block().scales, 4096, 17408), (Shape{32, 136}));
  EXPECT_EQ(shape(fp8_block().scales, 544, 300), (Shape{5, 3}));  // the last ones stand for fewer
  EXPECT_EQ(shape(fp8_channel().scales, 544, 300), (Shape{544}));
  EXPECT_EQ(shape(stored_formats()[2].codes, 8, 96), (Shape{8, 3, 16}));
  EXPECT_THROW(shape(quark_mxfp4().scales, 8, 48), Error);
}

// The unit of the MLP's width a rank follows from the format (DESIGN: 17472 in MXFP4 and 17424 in BF16 for three).
TEST(Quantization, the_width_of_an_mlp_follows_the_format) {
  const auto width = [](const char* quantization) {
    Keys keys = {{"intermediate_size", "17408"}};
    if (quantization != nullptr) keys["quantization_config"] = quantization;
    return ShardPlan(parse(config("llama", keys)), {.ranks = 3}).padded().intermediate;
  };
  EXPECT_EQ(width(nullptr), 17424);
  EXPECT_EQ(width(kQuarkMxfp4), 17472);
  EXPECT_EQ(width(kFp8Block), 17664);
}

TEST(Quantization, it_is_part_of_the_plans_hash) {
  const auto hash = [](const std::string& exclude) {
    const std::string text = R"({"quant_method":"mxfp4","modules_to_not_convert":[")" + exclude + "\"]}";
    return ShardPlan(parse(config("llama", {{"quantization_config", text}})), {}).hash();
  };
  EXPECT_NE(hash("a"), hash("b"));
}

}  // namespace
}  // namespace coprime
