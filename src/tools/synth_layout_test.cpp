// The tensors of public checkpoints, by their number, names and shapes.
#include "tools/synth_layout.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "tools/synth.h"
#include "tools/synth_config.h"

namespace coprime {
namespace {

using Shape = std::vector<int64_t>;

std::map<std::string, SynthTensor> tensors_of(const std::string& name, const SynthOptions& options, int layers = 0) {
  const SynthConfig config = read_synth_config(name, layers, options);
  std::map<std::string, SynthTensor> by_name;
  for (SynthTensor& tensor : config.draft ? synth_tensors(*config.draft, options.format)
                                          : synth_tensors(config.shape, config.vision, options)) {
    EXPECT_FALSE(by_name.contains(tensor.name)) << tensor.name;
    by_name[tensor.name] = std::move(tensor);
  }
  return by_name;
}

TEST(SynthLayout, has_as_many_tensors_as_the_public_checkpoints) {
  constexpr const char* k27b = "qwen3.8-27b";
  EXPECT_EQ(tensors_of(k27b, {SynthFormat::kQuarkMxfp4}).size(), 1703u);
  EXPECT_EQ(tensors_of(k27b, {SynthFormat::kQuarkMxfp4, true}).size(), 1695u);
  EXPECT_EQ(tensors_of(k27b, {SynthFormat::kFp8Block}).size(), 1606u);
  EXPECT_EQ(tensors_of("qwen3.8-27b-dflash2", {SynthFormat::kFp8Block}).size(), 117u);
}

TEST(SynthLayout, quarks_mxfp4_of_the_27b_model) {
  const auto tensors = tensors_of("qwen3.8-27b", {SynthFormat::kQuarkMxfp4});
  const auto expect = [&](const std::string& name, std::string_view type, const Shape& shape) {
    ASSERT_TRUE(tensors.contains(name)) << name;
    EXPECT_EQ(tensors.at(name).type, type) << name;
    EXPECT_EQ(tensors.at(name).shape, shape) << name;
  };
  const std::string layer = "model.language_model.layers.";
  expect(layer + "3.self_attn.q_proj.weight", "U8", {12288, 2560});
  expect(layer + "3.self_attn.q_proj.weight_scale", "U8", {12288, 160});
  expect(layer + "3.mlp.down_proj.weight", "U8", {5120, 8704});
  expect(layer + "3.mlp.down_proj.weight_scale", "U8", {5120, 544});
  expect(layer + "0.linear_attn.in_proj_a.weight", "U8", {48, 2560});
  expect(layer + "0.linear_attn.in_proj_b.weight_scale", "U8", {48, 160});
  expect(layer + "0.linear_attn.conv1d.weight", "BF16", {10240, 1, 4});
  expect(layer + "0.linear_attn.A_log", "BF16", {48});
  expect("mtp.layers.0.self_attn.q_proj.weight", "F8_E4M3", {12288, 5120});
  expect("mtp.layers.0.self_attn.q_proj.weight_scale", "F32", {12288});
  expect("mtp.fc.weight", "F8_E4M3", {5120, 10240});
  expect("model.language_model.embed_tokens.weight", "BF16", {248320, 5120});
  expect("model.visual.patch_embed.proj.weight", "BF16", {1152, 3, 2, 16, 16});
  expect("model.visual.merger.linear_fc2.weight", "BF16", {5120, 4608});
}

TEST(SynthLayout, fp8_blocks_leave_what_the_public_checkpoint_leaves) {
  const auto tensors = tensors_of("qwen3.8-27b", {SynthFormat::kFp8Block});
  EXPECT_EQ(tensors.at("model.language_model.layers.3.mlp.down_proj.weight").type, "F8_E4M3");
  EXPECT_EQ(tensors.at("model.language_model.layers.3.mlp.down_proj.weight_scale_inv").type, "BF16");
  EXPECT_EQ(tensors.at("model.language_model.layers.3.mlp.down_proj.weight_scale_inv").shape, (Shape{40, 136}));
  for (const char* kept : {"model.language_model.layers.0.linear_attn.in_proj_a.weight", "mtp.fc.weight",
                           "lm_head.weight", "model.visual.blocks.0.attn.qkv.weight"})
    EXPECT_EQ(tensors.at(kept).type, "BF16") << kept;
}

TEST(SynthLayout, a_partial_block_has_a_scale_of_its_own) {
  const auto tensors = tensors_of("smollm2-135m", {SynthFormat::kFp8Block});
  EXPECT_EQ(tensors.at("model.layers.0.self_attn.k_proj.weight_scale_inv").shape, (Shape{2, 5}));  // of [192, 576]
}

TEST(SynthLayout, columns_that_are_no_whole_blocks_are_refused_by_name) {
  ModelShape shape = read_synth_config("smollm2-135m", 1, {}).shape;
  shape.intermediate = 1544;
  try {
    synth_tensors(shape, {}, {SynthFormat::kQuarkMxfp4});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_NE(std::string(error.what()).find("down_proj.weight has 1544 columns"), std::string::npos) << error.what();
  }
}

TEST(SynthConfig, has_the_layers_and_the_format_that_were_asked_for) {
  const SynthConfig config = read_synth_config("qwen3.8-27b", 6, {SynthFormat::kFp8Block});
  EXPECT_EQ(config.shape.layers, 6);
  EXPECT_EQ(config.shape.layer_kinds[3], LayerKind::kFullAttention);
  EXPECT_NE(config.text.find("\"weight_block_size\""), std::string::npos) << config.text;
  EXPECT_EQ(read_synth_config("qwen3.8-27b", 0, {SynthFormat::kF32}).text.find("quantization_config"),
            std::string::npos);
  EXPECT_EQ(read_synth_config("qwen3.8-27b-dflash2", 2, {}).draft->layers, 2);
  EXPECT_THROW(read_synth_config("qwen3.8-27b", 65, {}), Error);
}

TEST(ShareOut, fills_files_in_order_and_numbers_them) {
  std::vector<SynthTensor> tensors;
  for (int64_t size : {30, 60, 20, 200, 10})
    tensors.push_back({fmt::format("t{}", size), "U8", {size}, {Content::kE4m3}});
  const std::vector<SynthFile> files = share_out(tensors, 100, false);
  ASSERT_EQ(files.size(), 4u);
  EXPECT_EQ(files[0].name, "model-00001-of-00004.safetensors");
  EXPECT_EQ(files[0].tensors.size(), 2u);
  EXPECT_EQ(files[2].tensors[0].name, "t200");  // larger than a file may be: alone
  EXPECT_EQ(share_out(tensors, 1000, false)[0].name, "model.safetensors");
}

TEST(ShareOut, fp8_of_the_27b_model_is_in_66_files) {
  const SynthConfig config = read_synth_config("qwen3.8-27b", 0, {SynthFormat::kFp8Block});
  const auto files = share_out(synth_tensors(config.shape, config.vision, {SynthFormat::kFp8Block}), 1, true);
  EXPECT_EQ(files.size(), 66u);
}

}  // namespace
}  // namespace coprime
