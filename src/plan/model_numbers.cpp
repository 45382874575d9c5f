#include "plan/model_numbers.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "json/json.h"

namespace coprime {
namespace {

// Far above any model; low enough that no product of three of them overflows.
constexpr int64_t kMaxLayers = 4096, kMaxHeads = 1 << 14, kMaxWidth = 1 << 20, kMaxVocab = 1 << 24,
                  kMaxPositions = 1 << 30, kMaxExperts = 1 << 14;

// The first of the names that the config has.
std::optional<int64_t> integer_of(const JsonObject& keys, std::initializer_list<std::string_view> names, int64_t least,
                                  int64_t most) {
  for (const std::string_view name : names) {
    if (const auto value = keys.integer(name, least, most)) return value;
  }
  return std::nullopt;
}

int64_t required_of(const JsonObject& keys, std::initializer_list<std::string_view> names, int64_t least,
                    int64_t most) {
  if (const auto value = integer_of(keys, names, least, most)) return *value;
  fail(ErrorKind::kModel, "{} is missing; expected an integer in {}..{}", keys.path(*names.begin()), least, most);
}

std::string architecture_of(const JsonObject& root) {
  std::string_view name;
  if (const auto names = root.array("architectures");
      names && names->size() > 0 && names->at(0).get(name) == simdjson::SUCCESS)
    return printable(name);
  return root.string("model_type").value_or("an unnamed architecture");
}

void read_attention(const JsonObject& keys, ModelNumbers* n) {
  n->q_heads = required_of(keys, {"num_attention_heads", "n_head"}, 1, kMaxHeads);
  n->kv_heads = integer_of(keys, {"num_key_value_heads"}, 1, kMaxHeads).value_or(n->q_heads);
  n->kv_rank = keys.integer("kv_lora_rank", 1, kMaxWidth).value_or(0);
  if (n->latent()) {
    n->kv_heads = n->q_heads;  // what the config says of them means nothing: the cache is shared by all heads
    n->q_rank = keys.integer("q_lora_rank", 1, kMaxWidth).value_or(0);
    n->nope_dim = keys.required_integer("qk_nope_head_dim", 1, kMaxHeads);
    n->rope_dim = keys.required_integer("qk_rope_head_dim", 1, kMaxHeads);
    n->value_dim = keys.required_integer("v_head_dim", 1, kMaxHeads);
    n->head_dim = n->value_dim;
    n->q_rows = n->nope_dim + n->rope_dim;
    return;
  }
  n->head_dim = keys.integer("head_dim", 1, kMaxHeads).value_or(std::max<int64_t>(n->hidden / n->q_heads, 1));
  n->q_rows = keys.boolean("attn_output_gate").value_or(false) ? 2 * n->head_dim : n->head_dim;
  n->qkv_bias = keys.boolean("attention_bias").value_or(keys.string("model_type").value_or("") == "qwen2");
}

void read_layers(const JsonObject& keys, ModelNumbers* n) {
  n->layers = required_of(keys, {"num_hidden_layers", "n_layer"}, 1, kMaxLayers);
  if (const auto types = keys.array("layer_types")) {
    for (const simdjson::dom::element type : *types) {
      std::string_view name;
      if (type.get(name) == simdjson::SUCCESS && name == "linear_attention") ++n->linear_layers;
    }
  } else if (keys.has("linear_num_key_heads")) {
    n->linear_layers = n->layers - n->layers / keys.integer("full_attention_interval", 1, kMaxLayers).value_or(4);
  }
  if (n->linear_layers > n->layers) {
    fail(ErrorKind::kModel, "{} names {} linear layers; expected at most num_hidden_layers, {}",
         keys.path("layer_types"), n->linear_layers, n->layers);
  }
  n->attention_layers = n->layers - n->linear_layers;
  if (n->linear_layers == 0) return;
  n->linear.key_heads = static_cast<int>(keys.required_integer("linear_num_key_heads", 1, kMaxHeads));
  n->linear.value_heads = static_cast<int>(keys.required_integer("linear_num_value_heads", 1, kMaxHeads));
  n->linear.key_dim = static_cast<int>(keys.required_integer("linear_key_head_dim", 1, kMaxHeads));
  n->linear.value_dim = static_cast<int>(keys.required_integer("linear_value_head_dim", 1, kMaxHeads));
  n->linear.conv_taps = static_cast<int>(keys.required_integer("linear_conv_kernel_dim", 1, 64));
}

void read_mlp(const JsonObject& keys, ModelNumbers* n) {
  n->experts = integer_of(keys, {"num_experts", "num_local_experts", "n_routed_experts"}, 0, kMaxExperts).value_or(0);
  n->intermediate = integer_of(keys, {"intermediate_size", "n_inner"}, 1, kMaxWidth).value_or(0);
  if (n->experts > 0) {
    n->active_experts = integer_of(keys, {"num_experts_per_tok", "num_experts_per_token"}, 1, n->experts).value_or(1);
    n->expert_width = keys.integer("moe_intermediate_size", 1, kMaxWidth).value_or(n->intermediate);
    if (n->expert_width == 0) required_of(keys, {"moe_intermediate_size"}, 1, kMaxWidth);
    const int64_t shared = keys.integer("n_shared_experts", 0, kMaxExperts).value_or(0) * n->expert_width;
    n->shared_width = keys.integer("shared_expert_intermediate_size", 0, kMaxWidth).value_or(shared);
    n->mlp_layers = std::min(keys.integer("first_k_dense_replace", 0, kMaxLayers).value_or(0), n->layers);
    n->expert_layers = n->layers - n->mlp_layers;
  } else {
    required_of(keys, {"intermediate_size", "n_inner"}, 1, kMaxWidth);
    n->mlp_layers = n->layers;
  }
  // Two matrices where nothing gates the first one's output (StarCoder2, GPT-2).
  const std::string activation =
      keys.string("hidden_act").value_or(keys.string("activation_function").value_or("silu"));
  const bool plain =
      activation.starts_with("gelu") && !keys.has("hidden_activation") && !keys.has("final_logit_softcapping");
  n->mlp_matrices =
      plain && n->experts == 0 && keys.string("model_type").value_or("").find("gemma") == std::string::npos ? 2 : 3;
}

}  // namespace

ModelNumbers numbers_of(const ModelShape& shape) {
  ModelNumbers n;
  n.name = shape.architecture_name;
  n.hidden = shape.hidden;
  n.vocab = shape.vocab;
  n.max_positions = shape.max_positions;
  n.layers = shape.layers;
  n.linear_layers = std::ranges::count(shape.layer_kinds, LayerKind::kLinearAttention);
  n.attention_layers = n.layers - n.linear_layers;
  n.tied_head = shape.tied_head;
  n.q_heads = shape.q_heads;
  n.kv_heads = shape.kv_heads;
  n.head_dim = shape.head_dim;
  n.q_rows = shape.q_rows_per_head();
  n.extra_elements = shape.qk_norm ? 2 * int64_t{shape.head_dim} : 0;
  n.qkv_bias = shape.qkv_bias;
  n.linear = shape.linear;
  n.mlp_layers = shape.layers;
  n.intermediate = shape.intermediate;
  return n;
}

ModelNumbers numbers_of(const NamedShape& shape) {
  if (shape.architecture) return numbers_of(parse_model_shape(config_json(shape), std::string(shape.name)));
  ModelNumbers n;
  n.name = shape.checkpoint;
  n.refusal = shape.experts.count > 0    ? fmt::format("it has {} experts; supported: dense MLPs", shape.experts.count)
              : shape.latent.kv_rank > 0 ? "its attention is latent; supported: keys and values by head"
                                         : "its architecture is none of those that are supported";
  n.hidden = shape.hidden;
  n.vocab = shape.vocab;
  n.max_positions = shape.max_positions;
  n.layers = shape.layers;
  n.attention_layers = n.layers / shape.full_attention_interval;
  n.linear_layers = n.layers - n.attention_layers;
  n.tied_head = shape.tied_head;
  n.q_heads = shape.q_heads;
  n.kv_heads = shape.kv_heads;
  n.head_dim = shape.head_dim;
  // Where layers alternate, attention has an output gate (Qwen3-Next and its descendants).
  n.q_rows = n.linear_layers > 0 ? 2 * n.head_dim : n.head_dim;
  n.linear = shape.linear;
  if (shape.latent.kv_rank > 0) {
    n.q_rank = shape.latent.q_rank;
    n.kv_rank = shape.latent.kv_rank;
    n.rope_dim = shape.latent.rope_dim;
    n.nope_dim = n.value_dim = shape.head_dim - n.rope_dim;
    n.head_dim = n.value_dim;
  }
  n.intermediate = shape.intermediate;
  n.experts = shape.experts.count;
  n.active_experts = shape.experts.per_token;
  n.expert_width = shape.experts.width;
  n.shared_width = shape.experts.shared_width;
  n.mlp_layers = n.experts > 0 ? shape.experts.dense_layers : n.layers;
  n.expert_layers = n.layers - n.mlp_layers;
  if (shape.name.starts_with("starcoder2")) n.mlp_matrices = 2;  // GELU without a gate
  return n;
}

ModelNumbers parse_model_numbers(std::string_view json, const std::string& where) {
  std::string refusal;
  try {
    return numbers_of(parse_model_shape(json, where));
  } catch (const Error& error) {
    refusal = error.what();
  }
  const JsonDocument document(json, where);
  const JsonObject root = document.root();
  const JsonObject keys = root.object("text_config").value_or(root);
  ModelNumbers n;
  n.name = architecture_of(root);
  n.refusal = refusal;
  n.hidden = required_of(keys, {"hidden_size", "n_embd"}, 1, kMaxWidth);
  n.vocab = required_of(keys, {"vocab_size"}, 1, kMaxVocab);
  n.max_positions = integer_of(keys, {"max_position_embeddings", "n_positions"}, 1, kMaxPositions).value_or(1 << 17);
  const auto tied = root.boolean("tie_word_embeddings");
  n.tied_head = tied ? *tied : keys.boolean("tie_word_embeddings").value_or(false);
  read_attention(keys, &n);
  read_layers(keys, &n);
  read_mlp(keys, &n);
  return n;
}

}  // namespace coprime
