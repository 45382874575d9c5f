// Which checkpoints are accepted, and what is said of those that are not.
#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include "checkpoint/test_checkpoints.h"
#include "geometry/test_shapes.h"

namespace coprime {
namespace {

std::filesystem::path source(std::string_view path) { return std::filesystem::path(COPRIME_SOURCE_DIR) / path; }

constexpr std::string_view kGoldens[] = {"tests/goldens/llama-9q3kv-tied", "tests/goldens/qwen2-14q2kv-bias",
                                         "tests/goldens/qwen35-6q2kv-gdn4-12", "models/mini-qwen35"};

TEST(Checkpoints, the_goldens_and_the_embedded_model_pass_at_every_rank_count) {
  for (std::string_view golden : kGoldens) {
    const ModelShape shape = read_model_shape(source(golden));
    const Checkpoint checkpoint = Checkpoint::open(source(golden));
    for (int ranks = 1; ranks <= 16; ++ranks) {
      const ShardPlan plan(shape, {.ranks = ranks});
      const Tally tally = check_checkpoint(checkpoint, plan);
      size_t found = 0;
      for (const Tally::Line& line : tally.lines) {
        EXPECT_EQ(line.found, line.rule->expected) << line.name;
        found += static_cast<size_t>(line.found);
      }
      EXPECT_EQ(found + tally.unused.size(), checkpoint.tensors().size());
    }
  }
}

TEST(Checkpoints, the_tally_of_the_embedded_model_on_three_ranks_says_what_grew) {
  const ShardPlan plan(read_model_shape(source("models/mini-qwen35")), {.ranks = 3});
  const Tally tally = check_checkpoint(Checkpoint::open(source("models/mini-qwen35")), plan);
  const std::string text = tally.text();
  for (const char* line : {"embed_tokens 1x [1000 -> 1152]\n", "lm_head 1x [1000 -> 1152]\n",
                           "input_layernorm 8x [256]\n", "q_proj 2x [1536 -> 2304]\n", "k_proj 2x [128 -> 192]\n",
                           "o_proj 2x [768 -> 1152]\n", "q_norm 2x [32]\n", "in_proj_qkv 6x [1280 -> 1440]\n",
                           "conv1d 6x [1280 -> 1440]\n", "A_log 6x [48 -> 54]\n", "linear_attn.norm 6x [16]\n",
                           "out_proj 6x [768 -> 864]\n", "down_proj 8x [544 -> 576]\n", "unused: MTP 15x\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << text << " lacks " << line;
  }
  EXPECT_EQ(tally.unused.size(), 15u);
}

// A small sound checkpoint, which each test damages in one way.
class DamagedCheckpoint : public testing::Test {
 protected:
  std::string check() {
    write_tensors(folder_ / "model.safetensors", tensors_);
    const ShardPlan plan(shape_, {.ranks = 3});
    return model_error([&] { text_ = check_checkpoint(Checkpoint::open(folder_.path()), plan).text(); });
  }
  void expect(std::initializer_list<std::string> parts) {
    const std::string message = check();
    for (const std::string& part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << message << " lacks " << part;
  }
  NamedTensor& layer(std::string_view name) { return tensors_.at("model.language_model.layers." + std::string(name)); }
  void add(const std::string& name) { tensors_[name] = {DType::kF32, {1}, std::vector<std::byte>(4)}; }

  ModelShape shape_ = hybrid_shape({6, 2, 8, 48, 100, 24, 4}, {2, 4, 6, 10, 4});
  TensorMap tensors_ = random_tensors(shape_, 1);
  TemporaryFolder folder_;
  std::string text_;
};

TEST_F(DamagedCheckpoint, sound_it_passes) { EXPECT_EQ(check(), ""); }

TEST_F(DamagedCheckpoint, a_missing_tensor_is_named_with_its_rule) {
  tensors_.erase("model.language_model.layers.2.linear_attn.dt_bias");
  expect({"rule dt_bias: found 2", "predicts 3", "layers.2.linear_attn.dt_bias is missing", "fetch"});
}

TEST_F(DamagedCheckpoint, a_missing_head_is_named) {
  tensors_.erase("lm_head.weight");
  expect({"rule lm_head: found 0", "lm_head.weight is missing"});
}

TEST_F(DamagedCheckpoint, a_misshapen_tensor_is_named_with_both_shapes) {
  NamedTensor& q = layer("3.self_attn.q_proj.weight");
  std::swap(q.shape[0], q.shape[1]);
  expect({"layers.3.self_attn.q_proj.weight has the shape [24, 96]", "config.json makes it [96, 24]"});
}

TEST_F(DamagedCheckpoint, a_convolution_without_its_middle_axis_is_misshapen) {
  layer("0.linear_attn.conv1d.weight").shape = {64, 4};
  expect({"conv1d.weight has the shape [64, 4]", "[64, 1, 4]"});
}

TEST_F(DamagedCheckpoint, a_head_size_that_the_tensors_contradict_is_refused) {
  shape_.head_dim = shape_.rope.rotary_dim = 16;
  expect({"self_attn", "has the shape", "not of one model"});
}

TEST_F(DamagedCheckpoint, head_counts_that_the_tensors_contradict_are_refused) {
  shape_.kv_heads = 3;
  expect({"k_proj.weight has the shape [16, 24]", "[24, 24]"});
}

TEST_F(DamagedCheckpoint, other_types_are_refused_by_name) {
  layer("1.mlp.up_proj.weight") = {DType::kI32, {48, 24}, std::vector<std::byte>(48 * 24 * 4)};
  expect({"layers.1.mlp.up_proj.weight is I32", "BF16, F16, F32"});
}

TEST_F(DamagedCheckpoint, eight_bit_weights_are_refused_by_name) {
  const std::string header = R"({"model.norm.weight":{"dtype":"F8_E4M3","shape":[24],"data_offsets":[0,24]}})";
  write_sparse(folder_ / "model.safetensors", header, 24);
  const ShardPlan plan(dense_shape({6, 2, 8, 48, 100, 24, 4}), {});
  const std::string message = model_error([&] { check_checkpoint(Checkpoint::open(folder_.path()), plan); });
  EXPECT_NE(message.find("model.norm.weight is F8_E4M3, which is not supported; supported: BF16"), std::string::npos)
      << message;
}

TEST_F(DamagedCheckpoint, a_tensor_that_nothing_explains_is_refused) {
  add("model.language_model.layers.3.self_attn.q_proj.weight_scale");
  expect({"q_proj.weight_scale has no place"});
}

TEST_F(DamagedCheckpoint, a_tensor_of_the_other_kind_of_layer_is_refused) {
  add("model.language_model.layers.0.self_attn.q_norm.weight");
  expect({"layers.0.self_attn.q_norm.weight has no place"});
}

TEST_F(DamagedCheckpoint, a_layer_past_the_last_is_refused) {
  add("model.language_model.layers.4.input_layernorm.weight");
  expect({"layers.4.input_layernorm.weight has no place", "4 layers"});
}

TEST_F(DamagedCheckpoint, vision_mtp_and_old_rotary_tables_are_listed_as_unused) {
  for (const char* name : {"model.visual.blocks.0.norm1.weight", "visual.merger.weight", "mtp.fc.weight",
                           "mtp.norm.weight", "model.language_model.layers.3.self_attn.rotary_emb.inv_freq"}) {
    add(name);
  }
  EXPECT_EQ(check(), "");
  EXPECT_NE(text_.find("unused: MTP 2x rotary tables 1x vision 2x\n"), std::string::npos) << text_;
}

TEST_F(DamagedCheckpoint, a_head_beside_tied_embeddings_is_unused) {
  shape_.tied_head = true;
  EXPECT_EQ(check(), "");
  EXPECT_NE(text_.find("unused: tied lm_head 1x\n"), std::string::npos) << text_;
}

// The same tensors in two files with an index.
class ShardedCheckpoint : public testing::Test {
 protected:
  ShardedCheckpoint() {
    std::map<std::string, TensorMap> files;
    for (auto& [name, tensor] : random_tensors(shape_, 2)) {
      const std::string file = name.find("layers.1.") == name.npos ? "model-1.safetensors" : "model-2.safetensors";
      index_["weight_map"][name] = file;
      files[file][name] = tensor;
    }
    for (const auto& [file, tensors] : files) write_tensors(folder_ / file, tensors);
  }
  std::string open() {
    write_bytes(folder_ / "model.safetensors.index.json", index_.dump());
    return model_error([&] { check_checkpoint(Checkpoint::open(folder_.path()), ShardPlan(shape_, {.ranks = 2})); });
  }
  void expect(const std::string& part) {
    const std::string message = open();
    EXPECT_NE(message.find(part), std::string::npos) << message << " lacks " << part;
  }

  const ModelShape shape_ = dense_shape({6, 2, 8, 48, 100, 24, 2});
  nlohmann::json index_ = {{"metadata", {{"total_size", 1}}}};
  TemporaryFolder folder_;
};

TEST_F(ShardedCheckpoint, is_read_through_its_index) { EXPECT_EQ(open(), ""); }

TEST_F(ShardedCheckpoint, a_missing_file_is_named) {
  std::filesystem::remove(folder_ / "model-2.safetensors");
  expect("model-2.safetensors: No such file or directory");
}

TEST_F(ShardedCheckpoint, names_that_lead_out_of_the_folder_are_refused) {
  for (const char* name : {"../x.safetensors", "/etc/passwd", "sub/x.safetensors", "..", ".", ""}) {
    index_["weight_map"]["model.norm.weight"] = name;
    expect("weight_map.model.norm.weight is \"" + std::string(name) +
           "\"; expected the name of a file beside the index");
  }
  index_["weight_map"]["model.norm.weight"] = std::string("a\0b", 3);
  expect("expected the name of a file beside the index");
  index_["weight_map"]["model.norm.weight"] = 7;
  expect("weight_map.model.norm.weight is 7");
}

TEST_F(ShardedCheckpoint, a_tensor_that_the_index_names_and_the_file_lacks_is_named) {
  index_["weight_map"]["model.norm.weight"] = "model-2.safetensors";
  expect("model-2.safetensors: tensor model.norm.weight is missing");
}

TEST_F(ShardedCheckpoint, a_tensor_in_two_files_is_refused) {
  std::filesystem::copy_file(folder_ / "model-1.safetensors", folder_ / "model-3.safetensors");
  index_["weight_map"]["model.norm.weight"] = "model-3.safetensors";
  expect("stands in an earlier file, too");
}

TEST_F(ShardedCheckpoint, an_index_without_a_weight_map_or_cut_short_is_refused) {
  index_ = {{"metadata", nlohmann::json::object()}};
  expect("no weight_map");
  write_bytes(folder_ / "model.safetensors.index.json", R"({"weight_map":{"a":)");
  EXPECT_NE(model_error([&] { Checkpoint::open(folder_.path()); }).find("not JSON"), std::string::npos);
}

TEST(Checkpoints, a_folder_without_weights_says_what_is_looked_for) {
  const TemporaryFolder folder;
  const std::string message = model_error([&] { Checkpoint::open(folder.path()); });
  EXPECT_NE(message.find("neither model.safetensors nor model.safetensors.index.json"), std::string::npos) << message;
}

}  // namespace
}  // namespace coprime
