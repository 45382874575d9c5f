#include "tools/synth_config.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "json/json.h"

namespace coprime {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMaxConfigBytes = 4 << 20;
constexpr int64_t kMost = 1 << 24;

// AMD Quark's description of one kind of weights.
ordered_json quark_weight(const char* type) {
  if (std::string_view(type) == "fp4") {
    return {{"dtype", "fp4"}, {"is_dynamic", false}, {"qscheme", "per_group"},
            {"ch_axis", -1},  {"group_size", 32},    {"scale_format", "e8m0"}};
  }
  return {{"dtype", type}, {"is_dynamic", false}, {"qscheme", "per_channel"}, {"ch_axis", 0}};
}

ordered_json quark_config(const ordered_json& weight, const ordered_json& layers) {
  return {
      {"quant_method", "quark"},
      {"global_quant_config", {{"weight", weight}, {"input_tensors", nullptr}}},
      {"layer_quant_config", layers},
      {"exclude", {"lm_head", "re:.*embed_tokens", "re:.*visual.*"}},
      {"export",
       {{"kv_cache_group", ordered_json::array()}, {"pack_method", "reorder"}, {"weight_format", "real_quantized"}}}};
}

// Empty for a format that is none.
ordered_json quantization_config(const SynthOptions& options) {
  const ordered_json mtp_kept = {{"mtp.*", {{"weight", nullptr}, {"input_tensors", nullptr}}}};
  switch (options.format) {
    case SynthFormat::kQuarkMxfp4: {
      const ordered_json mtp_fp8 = {{"mtp.*", {{"weight", quark_weight("fp8_e4m3")}, {"input_tensors", nullptr}}}};
      return quark_config(quark_weight("fp4"), options.bf16_mtp ? mtp_kept : mtp_fp8);
    }
    case SynthFormat::kFp8Channel:
      return quark_config(quark_weight("fp8_e4m3"), options.bf16_mtp ? mtp_kept : ordered_json::object());
    case SynthFormat::kFp8Block: {
      ordered_json kept = {"lm_head", "embed_tokens", "re:.*in_proj_[ab]$", "re:.*visual.*", "mtp.fc"};
      if (options.bf16_mtp) kept.push_back("mtp");
      return {{"quant_method", "fp8"},
              {"fmt", "e4m3"},
              {"activation_scheme", "dynamic"},
              {"weight_block_size", {128, 128}},
              {"modules_to_not_convert", kept}};
    }
    default:
      return {};
  }
}

std::string source_text(const std::string& source, std::filesystem::path* folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(source, ignored)) return config_json(named_shape(source));
  *folder = source;
  return read_text_file(*folder / "config.json", kMaxConfigBytes);
}

VisionShape read_vision(const JsonObject& root) {
  VisionShape vision;
  const auto keys = root.object("vision_config");
  if (!keys) return vision;
  const auto number = [&](const char* key, int64_t otherwise) {
    return keys->integer(key, 1, kMost).value_or(otherwise);
  };
  vision.layers = static_cast<int>(keys->required_integer("depth", 1, 1024));
  vision.hidden = keys->required_integer("hidden_size", 1, 1 << 20);
  vision.intermediate = keys->required_integer("intermediate_size", 1, 1 << 20);
  vision.positions = keys->required_integer("num_position_embeddings", 1, kMost);
  const int64_t side = number("patch_size", 16), merge = number("spatial_merge_size", 2);
  if (side > 256 || merge > 256)
    fail(ErrorKind::kModel, "{} is {}; expected at most 256", keys->path("patch_size"), side);
  vision.patch_elements = 2 * 3 * side * side;
  vision.merged_patches = merge * merge;
  return vision;
}

std::optional<DrafterShape> read_drafter(const JsonObject& root) {
  const auto names = root.array("architectures");
  std::string_view name;
  if (!names || names->size() != 1 || names->at(0).get(name) != simdjson::SUCCESS || name != "DFlash2DraftModel")
    return std::nullopt;
  const auto draft = root.object("dflash_config");
  if (!draft)
    fail(ErrorKind::kModel, "{} is missing; expected the drafter's own keys there", root.path("dflash_config"));
  const auto width = [](const JsonObject& keys, const char* key) { return keys.required_integer(key, 1, 1 << 20); };
  DrafterShape shape;
  shape.hidden = width(root, "hidden_size");
  shape.intermediate = width(root, "intermediate_size");
  shape.vocab = root.required_integer("vocab_size", 1, kMost);
  shape.layers = static_cast<int>(root.required_integer("num_hidden_layers", 1, 4096));
  shape.q_heads = root.required_integer("num_attention_heads", 1, 1 << 14);
  shape.kv_heads = root.required_integer("num_key_value_heads", 1, 1 << 14);
  shape.head_dim = root.required_integer("head_dim", 1, 1 << 14);
  shape.conv_taps = draft->required_integer("conv_kernel_size", 1, 64);
  shape.conv_group = draft->required_integer("conv_group_size", 1, 1 << 20);
  shape.selector_rank = width(*draft, "selector_rank");
  const auto targets = draft->array("target_layer_ids");
  if (!targets || targets->size() == 0)
    fail(ErrorKind::kModel, "{} is missing; expected numbers of the target's layers", draft->path("target_layer_ids"));
  shape.target_layers = static_cast<int64_t>(targets->size());
  return shape;
}

// Where the text model's keys stand.
ordered_json& text_keys(ordered_json& config) {
  return config.contains("text_config") ? config["text_config"] : config;
}

void keep_layers(int layers, ordered_json* config, const std::string& where) {
  ordered_json& text = text_keys(*config);
  const int64_t all = text.at("num_hidden_layers").get<int64_t>();
  if (layers > all)
    fail(ErrorKind::kUsage, "{} has {} layers, and --layers asks for {}: ask for fewer", where, all, layers);
  text["num_hidden_layers"] = layers;
  if (text.contains("layer_types") && text["layer_types"].is_array())
    text["layer_types"].get_ref<ordered_json::array_t&>().resize(static_cast<size_t>(layers));
}

void set_format(const SynthOptions& options, ordered_json* config) {
  for (ordered_json* keys : {config, &text_keys(*config)}) {
    keys->erase("quantization_config");
    keys->erase("compression_config");
    for (const char* key : {"dtype", "torch_dtype"})
      if (keys->contains(key)) (*keys)[key] = options.format == SynthFormat::kF32 ? "float32" : "bfloat16";
  }
  if (ordered_json quantization = quantization_config(options); !quantization.empty())
    (*config)["quantization_config"] = std::move(quantization);
}

}  // namespace

SynthConfig read_synth_config(const std::string& source, int layers, const SynthOptions& options) {
  SynthConfig made;
  const std::string text = source_text(source, &made.folder);
  const std::string where = made.folder.empty() ? source : (made.folder / "config.json").string();
  { const JsonDocument sound(text, where); }  // bounded depth, no key twice
  ordered_json config = ordered_json::parse(text);
  set_format(SynthOptions{.format = options.format == SynthFormat::kF32 ? SynthFormat::kF32 : SynthFormat::kBf16},
             &config);

  const std::string plain = config.dump();
  const JsonDocument document(plain, where);
  made.draft = read_drafter(document.root());
  if (!made.draft) made.shape = parse_model_shape(plain, where);
  if (layers > 0) {
    keep_layers(layers, &config, where);
    if (made.draft)
      made.draft->layers = layers;
    else
      made.shape = parse_model_shape(config.dump(), where);
  }
  made.vision = read_vision(document.root());
  set_format(options, &config);
  made.text = config.dump(2) + "\n";
  return made;
}

}  // namespace coprime
