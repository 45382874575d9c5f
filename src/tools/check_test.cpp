// The counts of the seed's tables, from headers alone; real tensors padded; and what is reported of files that do not
// fit.
#include "tools/check.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/number_formats.h"
#include "checkpoint/test_checkpoints.h"
#include "geometry/drafter.h"
#include "geometry/rules.h"
#include "geometry/test_configs.h"

namespace coprime {
namespace {

using nlohmann::ordered_json;

constexpr const char* kQuark = R"({"quant_method":"quark","exclude":["lm_head","re:.*visual.*"],
  "global_quant_config":{"weight":{"dtype":"fp4","qscheme":"per_group","group_size":32,"scale_format":"e8m0"}},
  "layer_quant_config":{"mtp.*":{"weight":MTP}}})";
constexpr const char* kFp8Rows = R"({"dtype":"fp8_e4m3","qscheme":"per_channel","ch_axis":0})";
constexpr const char* kFp8Block = R"({"quant_method":"fp8","weight_block_size":[128,128],
  "modules_to_not_convert":["fc","re:.*_conv.*","candidate_selector","lm_head"]})";

std::string quark_config(const std::string& mtp) {
  std::string text = kQuark;
  return text.replace(text.find("MTP"), 3, mtp);
}

// Qwen3.8-27B's config, with a quantization_config or none.
std::string config_27b(const std::string& quantization) {
  Keys inside = {{"hidden_size", "5120"},
                 {"intermediate_size", "17408"},
                 {"vocab_size", "248320"},
                 {"num_hidden_layers", "64"},
                 {"num_attention_heads", "24"},
                 {"num_key_value_heads", "4"},
                 {"head_dim", "256"},
                 {"max_position_embeddings", "262144"},
                 {"linear_num_key_heads", "16"},
                 {"linear_num_value_heads", "48"},
                 {"linear_key_head_dim", "128"},
                 {"linear_value_head_dim", "128"},
                 {"mtp_num_hidden_layers", "1"},
                 {"layer_types", ""}};
  return wrapped({{"quantization_config", quantization}}, inside);
}

// A safetensors header, tensor by tensor, over data that is a hole.
class HeaderBuilder {
 public:
  void add(const std::string& name, const std::string& type, const std::vector<int64_t>& shape) {
    const uint64_t width = type == "F32" ? 4 : type == "BF16" ? 2 : 1;
    const uint64_t bytes = static_cast<uint64_t>(count_of(shape)) * width;
    header_[name] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {bytes_, bytes_ + bytes}}};
    bytes_ += bytes;
  }
  // A matrix as the config has it, vectors and the rest in BF16.
  void add(const std::string& name, const Rule& rule, const Quantization& quantization) {
    const std::string module = name.ends_with(".weight") ? name.substr(0, name.size() - 7) : name;
    const bool linear = rule.shape.size() == 2 && rule.id != TensorId::kEmbedding;
    const StoredFormat* format = linear ? quantization.format_of(module) : nullptr;
    if (format == nullptr) return add(name, "BF16", rule.shape);
    for (const StoredPart* part : {&format->codes, &format->scales}) {
      add(module + std::string(part->suffix), std::string(dtype_name(part->types[0])),
          stored_shape(*part, rule.shape[0], rule.shape[1], name));
    }
  }
  void write(const std::filesystem::path& path) {
    write_sparse(path, header_.dump(), bytes_);
    header_ = ordered_json::object();
    bytes_ = 0;
  }
  size_t size() const { return header_.size(); }

 private:
  ordered_json header_ = ordered_json::object();
  uint64_t bytes_ = 0;
};

// 27 blocks of a vision tower, its patches and its merger: 333 tensors.
void add_vision(HeaderBuilder* header) {
  const auto add_both = [&](const std::string& name) {
    header->add("model.visual." + name + ".weight", "BF16", {8, 8});
    header->add("model.visual." + name + ".bias", "BF16", {8});
  };
  for (int i = 0; i < 27; ++i) {
    for (const char* name : {"norm1", "norm2", "attn.qkv", "attn.proj", "mlp.linear_fc1", "mlp.linear_fc2"})
      add_both(fmt::format("blocks.{}.{}", i, name));
  }
  for (const char* name : {"patch_embed.proj", "merger.norm", "merger.linear_fc1", "merger.linear_fc2"}) add_both(name);
  header->add("model.visual.pos_embed.weight", "BF16", {8, 8});
}

void add_model(const ModelShape& shape, const std::function<HeaderBuilder&(int layer)>& header_of) {
  const ShardPlan plan(shape, {});
  for (const Rule& rule : plan.rules()) {
    for (int layer = -1; layer < shape.layers; ++layer) {
      if (plan.applies(rule, layer)) header_of(layer).add(plan.tensor_name(rule, layer), rule, shape.quantization);
    }
  }
  for (const MtpTensor& tensor : mtp_tensors(plan)) header_of(-1).add(tensor.name, tensor.rule, shape.quantization);
  add_vision(&header_of(-1));
}

class Check27b : public testing::Test {
 protected:
  void make(const std::string& quantization) {
    write_bytes(folder_ / "config.json", config_27b(quantization));
    HeaderBuilder header;
    add_model(read_model_shape(folder_.path()), [&](int) -> HeaderBuilder& { return header; });
    header.write(folder_ / "model.safetensors");
  }
  CheckResult check(PlanOptions options = {.ranks = 3}) {
    return check_model({.model = folder_.path(), .plan = options});
  }
  static const CheckedRule& rule(const HeaderCheck& check, const std::string& part, const std::string& name) {
    for (const CheckedRule& line : check.rules) {
      if (line.part == part && line.name == name) return line;
    }
    throw std::runtime_error("no rule " + name);
  }

  TemporaryFolder folder_;
};

TEST_F(Check27b, in_quarks_layout_1148_of_1703_tensors_are_padded_for_three) {
  make(quark_config(kFp8Rows));
  const CheckResult result = check();
  EXPECT_TRUE(result.holds()) << check_text(result);
  EXPECT_EQ(result.model.tensors, 1703);
  EXPECT_EQ(result.model.padded, 1148);
  EXPECT_EQ(result.model.unused.at("vision"), 333);
  const CheckedRule& q = rule(result.model, "", "q_proj");
  EXPECT_EQ(q.format, "MXFP4 (Quark)");
  EXPECT_EQ(std::pair(q.stock_size, q.padded_size), std::pair(int64_t{12288}, int64_t{18432}));
  EXPECT_EQ(std::pair(q.found, q.expected), std::pair(16, 16));
  EXPECT_EQ(rule(result.model, "", "down_proj").padded_size, 17472);
  EXPECT_EQ(rule(result.model, "", "in_proj_qkv").padded_size, 2304 + 2304 + 6912);
  EXPECT_EQ(rule(result.model, "mtp", "o_proj").padded, 1);  // its scales stand for rows
  EXPECT_EQ(rule(result.model, "mtp", "fc").padded, 0);
  EXPECT_EQ(rule(result.model, "", "lm_head").padded, 0);  // at run time
  EXPECT_EQ(rule(result.model, "", "lm_head").padded_size, 248448);
  EXPECT_GT(result.model.denied, 333);
}

TEST_F(Check27b, with_the_mlp_stock_759_are_padded) {
  make(quark_config(kFp8Rows));
  const CheckResult result = check({.ranks = 2, .pad_for = 3, .mlp_width = 17408});
  EXPECT_TRUE(result.holds()) << check_text(result);
  EXPECT_EQ(result.model.padded, 759);
}

TEST_F(Check27b, with_a_bf16_mtp_layer_1143_of_1695) {
  make(quark_config("null"));
  const CheckResult result = check();
  EXPECT_TRUE(result.holds()) << check_text(result);
  EXPECT_EQ(std::pair(result.model.padded, result.model.tensors), std::pair(1143, 1695));
}

TEST_F(Check27b, what_divides_is_not_padded) {
  make(quark_config(kFp8Rows));
  EXPECT_EQ(check({.ranks = 2}).model.padded, 0);
}

TEST_F(Check27b, headers_of_66_files_take_less_than_a_second) {
  const std::string text = config_27b(quark_config(kFp8Rows));
  write_bytes(folder_ / "config.json", text);
  std::vector<HeaderBuilder> headers(66);
  add_model(parse_model_shape(text, ""),
            [&](int layer) -> HeaderBuilder& { return headers[static_cast<size_t>(layer + 1)]; });
  headers[65].add("model.visual.extra.weight", "BF16", {8});
  ordered_json map = ordered_json::object();
  for (size_t i = 0; i < headers.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-00066.safetensors", i + 1);
    headers[i].write(folder_ / name);
    map[fmt::format("x{}", i)] = name;
  }
  map = ordered_json::object();
  for (size_t i = 0; i < headers.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-00066.safetensors", i + 1);
    const SafetensorsFile file = SafetensorsFile::open(folder_ / name);
    for (const TensorInfo& tensor : file.tensors()) map[tensor.name] = name;
  }
  write_bytes(folder_ / "model.safetensors.index.json", ordered_json{{"weight_map", map}}.dump());
  const auto begin = std::chrono::steady_clock::now();
  const CheckResult result = check();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(result.model.padded, 1148);
  EXPECT_LT(seconds.count(), 1.0);
}

TEST_F(Check27b, all_that_is_wrong_is_reported) {
  write_bytes(folder_ / "config.json", config_27b(quark_config(kFp8Rows)));
  HeaderBuilder header;
  const ModelShape shape = read_model_shape(folder_.path());
  const ShardPlan plan(shape, {});
  for (const Rule& rule : plan.rules()) {
    for (int layer = -1; layer < shape.layers; ++layer) {
      if (!plan.applies(rule, layer)) continue;
      if (rule.id == TensorId::kUp && layer == 5) continue;  // missing
      Rule changed = rule;
      if (rule.id == TensorId::kK && layer == 7) changed.shape[0] += 64;  // of another model
      header.add(plan.tensor_name(rule, layer), changed, shape.quantization);
    }
  }
  header.add("model.language_model.layers.64.mlp.up_proj.weight", "BF16", {8, 8});
  header.write(folder_ / "model.safetensors");
  const CheckResult result = check();
  EXPECT_FALSE(result.holds());
  std::string all;
  for (const std::string& problem : result.model.problems) all += problem + "\n";
  for (const char* part : {"rule up_proj: tensor model.language_model.layers.5.mlp.up_proj.weight is missing",
                           "layers.7.self_attn.k_proj.weight has the shape [1088, 2560]",
                           "layers.64.mlp.up_proj.weight matches no rule"}) {
    EXPECT_NE(all.find(part), all.npos) << all;
  }
  EXPECT_EQ(result.model.unmatched.size(), 1u);
  const std::string text = check_text(result);
  EXPECT_NE(text.find("63 of 64"), text.npos) << text;
  const auto json = nlohmann::json::parse(check_json(result));
  EXPECT_FALSE(json.at("holds"));
  EXPECT_EQ(json.at("model").at("problems").size(), result.model.problems.size());
}

// 32 query heads in 8 groups beside the target's 6 KV heads of 256: 48 and 12, and 138 blocks of 128.
TEST_F(Check27b, of_its_fp8_drafter_70_of_117_are_padded) {
  make(quark_config(kFp8Rows));
  const TemporaryFolder drafter;
  write_bytes(drafter / "config.json", json_text({{"architectures", R"(["DFlash2DraftModel"])"},
                                                  {"model_type", R"("qwen3")"},
                                                  {"hidden_size", "5120"},
                                                  {"intermediate_size", "17408"},
                                                  {"vocab_size", "248320"},
                                                  {"num_hidden_layers", "5"},
                                                  {"num_attention_heads", "32"},
                                                  {"num_key_value_heads", "8"},
                                                  {"head_dim", "128"},
                                                  {"quantization_config", kFp8Block}}));
  const ModelShape shape = read_drafter_shape(drafter.path());
  const ShardPlan plan(shape, {});
  HeaderBuilder header;
  for (const Rule& rule : plan.rules()) {
    for (int layer = 0; layer < 5; ++layer) {
      if (plan.applies(rule, layer))
        header.add(fmt::format("layers.{}.{}", layer, rule.suffix), rule, shape.quantization);
    }
  }
  for (int layer = 0; layer < 5; ++layer) {
    for (const char* conv : {"attention_conv", "mlp_conv"}) {
      header.add(fmt::format("layers.{}.{}.base_kernel", layer, conv), "BF16", {2, 2, 5120});
      header.add(fmt::format("layers.{}.{}.kernel_projection.weight", layer, conv), "BF16", {1280, 5120});
    }
  }
  for (const char* name : {"fc.weight", "hidden_norm.weight", "norm.weight", "candidate_selector.predecessor_codebook",
                           "candidate_selector.successor_codebook", "candidate_selector.hidden_projection.weight",
                           "candidate_selector.norm.weight"}) {
    header.add(name, "BF16", {8});
  }
  header.write(drafter / "model.safetensors");
  const CheckResult result = check_model({.model = folder_.path(), .drafter = drafter.path(), .plan = {.ranks = 3}});
  EXPECT_TRUE(result.holds()) << check_text(result);
  EXPECT_EQ(std::pair(result.drafter->padded, result.drafter->tensors), std::pair(70, 117));
  EXPECT_EQ(std::pair(result.drafter_counts->q_heads, result.drafter_counts->kv_heads), std::pair(48, 12));
  EXPECT_EQ(result.drafter_counts->intermediate, 138 * 128);
}

// Small models with random contents, each in its format: one tensor of every rule is padded and compared.
TEST(CheckTensors, one_real_tensor_of_each_rule_is_padded_as_the_format_says) {
  const std::string formats[] = {
      "", quark_config(kFp8Rows), R"({"quant_method":"fp8","weight_block_size":[128,128]})",
      std::string(R"({"quant_method":"quark","global_quant_config":{"weight":)") + kFp8Rows + "}}"};
  for (const std::string& format : formats) {
    const TemporaryFolder folder;
    write_bytes(folder / "config.json", config("qwen35", {{"hidden_size", "96"},
                                                          {"intermediate_size", "288"},
                                                          {"num_attention_heads", "24"},
                                                          {"num_key_value_heads", "4"},
                                                          {"linear_value_head_dim", "16"},
                                                          {"quantization_config", format}}));
    const ModelShape shape = read_model_shape(folder.path());
    std::mt19937 random(1);
    TensorMap tensors;
    for (auto& [name, tensor] : random_tensors(shape, 1)) {
      const std::string module = name.ends_with(".weight") ? name.substr(0, name.size() - 7) : name;
      const bool linear = tensor.shape.size() == 2 && !name.ends_with("embed_tokens.weight");
      const StoredFormat* stored = linear ? shape.quantization.format_of(module) : nullptr;
      if (stored == nullptr) {
        tensors[name] = std::move(tensor);
        continue;
      }
      for (const StoredPart* part : {&stored->codes, &stored->scales}) {
        NamedTensor made{part->types[0], stored_shape(*part, tensor.shape[0], tensor.shape[1], name), {}};
        made.bytes.resize(static_cast<size_t>(count_of(made.shape) * dtype_bytes(made.type)));
        for (std::byte& byte : made.bytes) byte = static_cast<std::byte>(random() & 0x7f);
        tensors[module + std::string(part->suffix)] = std::move(made);
      }
    }
    write_tensors(folder / "model.safetensors", tensors);
    for (int ranks : {1, 2, 3, 5, 7}) {
      const CheckResult result = check_model({.model = folder.path(), .plan = {.ranks = ranks}, .tensors = true});
      EXPECT_TRUE(result.holds()) << check_text(result);
      for (const CheckedRule& line : result.model.rules) {
        EXPECT_EQ(line.verified, line.op != Operation::kReplicate && !line.at_run_time) << line.name;
      }
    }
  }
}

}  // namespace
}  // namespace coprime
