#include "geometry/model_shape.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "geometry/config_parts.h"
#include "geometry/gguf_shape.h"
#include "json/json.h"

namespace coprime {
namespace {

constexpr int64_t kMaxConfigBytes = 4 << 20;

struct Known {
  std::string_view name;
  Architecture architecture;
  std::string_view prefix;
  bool wrapped;  // the text model's keys stand in text_config
  std::array<std::string_view, 2> model_types;
};

constexpr auto kKnown = std::to_array<Known>({
    {"LlamaForCausalLM", Architecture::kLlama, "model.", false, {"llama", "llama"}},
    {"Qwen2ForCausalLM", Architecture::kQwen2, "model.", false, {"qwen2", "qwen2"}},
    {"Qwen3ForCausalLM", Architecture::kQwen3, "model.", false, {"qwen3", "qwen3"}},
    {"Qwen3_5ForConditionalGeneration", Architecture::kQwen35, "model.language_model.", true, {"qwen3_5", "qwen3_5"}},
    {"Qwen3_5ForCausalLM", Architecture::kQwen35, "model.", false, {"qwen3_5_text", "qwen3_5"}},
});

const Known& known_architecture(const JsonObject& root) {
  const auto names = root.array("architectures");
  std::string found = "missing";
  if (names) {
    found = describe(*root.find("architectures"));
    std::string_view name;
    if (names->size() == 1 && names->at(0).get(name) == simdjson::SUCCESS) {
      for (const Known& known : kKnown) {
        if (name == known.name) return known;
      }
    }
  }
  std::string supported;
  for (const Known& known : kKnown) supported += (supported.empty() ? "" : ", ") + std::string(known.name);
  fail(ErrorKind::kModel, "{} is {}, which is not supported; supported: one of {}", root.path("architectures"), found,
       supported);
}

// The class that reads a checkpoint elsewhere follows model_type: two that disagree are no sound config.
void check_model_type(const JsonObject& root, const Known& known) {
  const auto type = root.string("model_type");
  if (!type || *type == known.model_types[0] || *type == known.model_types[1]) return;
  fail(ErrorKind::kModel, "{} is \"{}\"; expected \"{}\" with architecture {}", root.path("model_type"),
       printable(*type), known.model_types[0], known.name);
}

void parse_heads(const JsonObject& text, ModelShape* shape) {
  shape->q_heads = static_cast<int>(text.required_integer("num_attention_heads", 1, kMaxHeads));
  shape->kv_heads = static_cast<int>(text.integer("num_key_value_heads", 1, kMaxHeads).value_or(shape->q_heads));
  if (shape->q_heads % shape->kv_heads != 0) {
    fail(ErrorKind::kModel,
         "{} is {} with {} query heads; expected a divisor of them (query head h reads KV head h / GQA)",
         text.path("num_key_value_heads"), shape->kv_heads, shape->q_heads);
  }
  // Fixed here, before any plan widens the head counts.
  if (const auto head_dim = text.integer("head_dim", 2, kMaxHeads)) {
    shape->head_dim = static_cast<int>(*head_dim);
  } else if (shape->hidden % shape->q_heads != 0 || shape->hidden / shape->q_heads < 2) {
    fail(ErrorKind::kModel, "{} is missing, and hidden_size {} is no multiple of num_attention_heads {}; set head_dim",
         text.path("head_dim"), shape->hidden, shape->q_heads);
  } else {
    shape->head_dim = static_cast<int>(shape->hidden / shape->q_heads);
  }
  if (int64_t{shape->q_heads} * shape->head_dim > kMaxWidth) {
    fail(ErrorKind::kModel, "{} is {} with {} heads; expected at most {} elements in all", text.path("head_dim"),
         shape->head_dim, shape->q_heads, kMaxWidth);
  }
}

LayerKind layer_kind(const JsonObject& text, simdjson::dom::element value, bool linear_known) {
  std::string_view name;
  if (value.get(name) == simdjson::SUCCESS) {
    if (name == "full_attention") return LayerKind::kFullAttention;
    if (linear_known && name == "linear_attention") return LayerKind::kLinearAttention;
  }
  fail(ErrorKind::kModel, "{} holds {}, which is not supported; supported: full_attention{}", text.path("layer_types"),
       describe(value), linear_known ? ", linear_attention" : "");
}

void parse_layers(const JsonObject& text, ModelShape* shape) {
  shape->layers = static_cast<int>(text.required_integer("num_hidden_layers", 1, kMaxLayers));
  const bool hybrid = shape->architecture == Architecture::kQwen35;
  if (const auto types = text.array("layer_types")) {
    if (types->size() != static_cast<size_t>(shape->layers)) {
      fail(ErrorKind::kModel, "{} has {} entries; expected num_hidden_layers, {}", text.path("layer_types"),
           types->size(), shape->layers);
    }
    for (simdjson::dom::element type : *types) shape->layer_kinds.push_back(layer_kind(text, type, hybrid));
    return;
  }
  shape->layer_kinds.assign(static_cast<size_t>(shape->layers), LayerKind::kFullAttention);
  if (!hybrid) return;
  const int64_t interval = text.integer("full_attention_interval", 1, kMaxLayers).value_or(4);
  for (int i = 0; i < shape->layers; ++i) {
    if ((i + 1) % interval != 0) shape->layer_kinds[static_cast<size_t>(i)] = LayerKind::kLinearAttention;
  }
}

void parse_linear_attention(const JsonObject& text, ModelShape* shape) {
  LinearAttentionShape& linear = shape->linear;
  linear.key_heads = static_cast<int>(text.required_integer("linear_num_key_heads", 1, kMaxHeads));
  linear.value_heads = static_cast<int>(text.required_integer("linear_num_value_heads", 1, kMaxHeads));
  linear.key_dim = static_cast<int>(text.required_integer("linear_key_head_dim", 1, kMaxHeads));
  linear.value_dim = static_cast<int>(text.required_integer("linear_value_head_dim", 1, kMaxHeads));
  linear.conv_taps = static_cast<int>(text.required_integer("linear_conv_kernel_dim", 1, 64));
  if (linear.value_heads % linear.key_heads != 0) {
    fail(ErrorKind::kModel,
         "{} is {} with {} key heads; expected a multiple (value head j belongs to key head j / ratio)",
         text.path("linear_num_value_heads"), linear.value_heads, linear.key_heads);
  }
  if (int64_t{linear.key_heads} * linear.key_dim > kMaxWidth ||
      int64_t{linear.value_heads} * linear.value_dim > kMaxWidth) {
    fail(ErrorKind::kModel, "{}: {} x {} key and {} x {} value elements; expected at most {} of each",
         text.path("linear_num_key_heads"), linear.key_heads, linear.key_dim, linear.value_heads, linear.value_dim,
         kMaxWidth);
  }
}

float parse_eps(const JsonObject& text) {
  const double eps = text.number("rms_norm_eps").value_or(1e-6);
  // Zero would turn the norm of a dummy head into NaN.
  if (!(eps >= 1e-30 && eps <= 1)) {
    fail(ErrorKind::kModel, "{} is {}; expected a number in 1e-30..1", text.path("rms_norm_eps"), eps);
  }
  return static_cast<float>(eps);
}

JsonObject text_keys(const JsonObject& root, const Known& known) {
  if (known.architecture != Architecture::kQwen35) return root;
  if (const auto nested = root.object("text_config")) return *nested;
  if (known.wrapped) {
    fail(ErrorKind::kModel, "{} is missing; expected the text model's keys there in {}", root.path("text_config"),
         known.name);
  }
  return root;
}

}  // namespace

int64_t parse_mlp_unit(const ModelShape& shape) {
  int64_t unit = mlp_unit(nullptr);
  for (int layer = 0; layer < shape.layers && !shape.quantization.empty(); ++layer) {
    for (std::string_view name : {"gate_proj", "up_proj", "down_proj"}) {
      const std::string module = fmt::format("{}layers.{}.mlp.{}", shape.tensor_prefix, layer, name);
      unit = std::max(unit, mlp_unit(shape.quantization.format_of(module)));
    }
  }
  return unit;
}

ModelShape parse_model_shape(std::string_view json, const std::string& where) {
  const JsonDocument document(json, where);
  const JsonObject root = document.root();
  const Known& known = known_architecture(root);
  check_model_type(root, known);
  const JsonObject text = text_keys(root, known);
  refuse_unsupported(known.architecture, root, text);

  ModelShape shape;
  shape.architecture = known.architecture;
  shape.architecture_name = known.name;
  shape.tensor_prefix = known.prefix;
  shape.hidden = text.required_integer("hidden_size", 2, kMaxWidth);
  shape.intermediate = text.required_integer("intermediate_size", 1, kMaxWidth);
  shape.vocab = text.required_integer("vocab_size", 1, kMaxVocab);
  shape.max_positions = text.required_integer("max_position_embeddings", 1, kMaxPositions);
  parse_heads(text, &shape);
  parse_layers(text, &shape);
  shape.rms_eps = parse_eps(text);
  const auto tied = root.boolean("tie_word_embeddings");
  shape.tied_head = tied ? *tied : text.boolean("tie_word_embeddings").value_or(false);
  shape.rope = parse_rope(known.architecture, text, shape.head_dim);
  shape.qkv_bias = known.architecture == Architecture::kQwen2;
  shape.qk_norm = known.architecture == Architecture::kQwen3 || known.architecture == Architecture::kQwen35;
  if (known.architecture == Architecture::kQwen35) {
    shape.gated_attention = shape.norm_plus_one = true;
    shape.mtp_layers = static_cast<int>(text.integer("mtp_num_hidden_layers", 0, 64).value_or(0));
    if (std::ranges::count(shape.layer_kinds, LayerKind::kLinearAttention) > 0) parse_linear_attention(text, &shape);
  }
  shape.quantization = Quantization::parse(root, text);
  shape.mlp_unit = parse_mlp_unit(shape);
  return shape;
}

ModelShape read_model_shape(const std::filesystem::path& model) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(model, ignored)) return gguf_model_shape(GgufFile::open(model));
  const std::filesystem::path path = model / "config.json";
  return parse_model_shape(read_text_file(path, kMaxConfigBytes), path.string());
}

}  // namespace coprime
