#include "geometry/gguf_shape.h"

#include <array>
#include <cmath>

#include "base/error.h"
#include "base/printable.h"
#include "geometry/config_parts.h"

namespace coprime {
namespace {

struct Known {
  std::string_view name;
  Architecture architecture;
};
constexpr auto kKnown = std::to_array<Known>({
    {"llama", Architecture::kLlama},
    {"qwen2", Architecture::kQwen2},
    {"qwen3", Architecture::kQwen3},
    {"qwen35", Architecture::kQwen35},
});

const Known& known_architecture(const GgufFile& file) {
  constexpr std::string_view kKey = "general.architecture";
  const auto name = file.string(kKey);
  std::string supported;
  for (const Known& known : kKnown) {
    if (name && *name == known.name) return known;
    supported += (supported.empty() ? "" : ", ") + std::string(known.name);
  }
  fail(ErrorKind::kModel, "{} is {}, which is not supported; supported: one of {}", file.where(kKey),
       name ? fmt::format("\"{}\"", printable(*name)) : "missing", supported);
}

// A file that is no whole model.
void refuse_parts(const GgufFile& file) {
  const auto type = file.string("general.type");
  if (type && *type != "model") {
    fail(ErrorKind::kModel, "{} is \"{}\"; expected \"model\": give the model's own file", file.where("general.type"),
         printable(*type));
  }
  const int64_t parts = file.integer("split.count", 0, 1 << 16).value_or(1);
  if (parts > 1) {
    fail(ErrorKind::kModel,
         "{} is {}, which is not supported; supported: one file (join the parts with gguf-split "
         "--merge)",
         file.where("split.count"), parts);
  }
}

// Keys that would change the mathematics, each with the value that changes nothing.
struct Refusal {
  std::string_view key;
  double neutral;
  std::string_view supported;
};
constexpr auto kRefusals = std::to_array<Refusal>({
    {"expert_count", 0, "dense MLPs"},
    {"attention.sliding_window", 0, "full attention"},
    {"attention.max_alibi_bias", 0, "rotary positions"},
    {"attention.clamp_kqv", 0, "queries, keys and values as they are"},
    {"attention.scale", 0, "scores scaled by head_dim^-0.5"},
    {"attn_logit_softcapping", 0, "attention without soft caps"},
    {"final_logit_softcapping", 0, "logits without soft caps"},
    {"logit_scale", 1, "logits as they are"},
    {"embedding_scale", 1, "embeddings as they are"},
    {"residual_scale", 1, "plain residuals"},
    {"rope.scale_linear", 1, "positions as they are"},
});

class ShapeReader {
 public:
  ShapeReader(const GgufFile& file, const Known& known) : file_(file), arch_(std::string(known.name) + ".") {}

  std::string key(std::string_view name) const { return arch_ + std::string(name); }
  std::string where(std::string_view name) const { return file_.where(key(name)); }
  int64_t required(std::string_view name, int64_t min, int64_t max) const {
    return file_.required_integer(key(name), min, max);
  }
  std::optional<int64_t> integer(std::string_view name, int64_t min, int64_t max) const {
    return file_.integer(key(name), min, max);
  }

  void refuse_unsupported() const {
    for (const Refusal& refusal : kRefusals) {
      const auto value = file_.number(key(refusal.key));
      if (!value || *value == refusal.neutral) continue;
      fail(ErrorKind::kModel, "{} is {}, which is not supported; supported: {}", where(refusal.key), *value,
           refusal.supported);
    }
    if (!file_.boolean(key("attention.causal")).value_or(true))
      fail(ErrorKind::kModel, "{} is false, which is not supported; supported: causal attention",
           where("attention.causal"));
    const auto scaling = file_.string(key("rope.scaling.type"));
    if (scaling && *scaling != "none")
      fail(ErrorKind::kModel, "{} is \"{}\", which is not supported; supported: none, and a tensor rope_freqs.weight",
           where("rope.scaling.type"), printable(*scaling));
  }

  void layers(ModelShape* shape) const {
    const int64_t blocks = required("block_count", 1, kMaxLayers);
    shape->mtp_layers = static_cast<int>(integer("nextn_predict_layers", 0, blocks - 1).value_or(0));
    shape->layers = static_cast<int>(blocks) - shape->mtp_layers;
    shape->layer_kinds.assign(static_cast<size_t>(shape->layers), LayerKind::kFullAttention);
    if (shape->architecture != Architecture::kQwen35) return;
    const auto flags = file_.integers(key("attention.recurrent_layers"));
    if (flags && flags->size() != static_cast<size_t>(shape->layers) && flags->size() != static_cast<size_t>(blocks))
      fail(ErrorKind::kModel, "{} has {} entries; expected one a layer, {}", where("attention.recurrent_layers"),
           flags->size(), shape->layers);
    const int64_t interval = integer("full_attention_interval", 1, kMaxLayers).value_or(4);
    for (size_t i = 0; i < shape->layer_kinds.size(); ++i) {
      const bool linear = flags ? (*flags)[i] != 0 : (static_cast<int64_t>(i) + 1) % interval != 0;
      if (linear) shape->layer_kinds[i] = LayerKind::kLinearAttention;
    }
  }

  void heads(ModelShape* shape) const {
    shape->q_heads = static_cast<int>(required("attention.head_count", 1, kMaxHeads));
    shape->kv_heads = static_cast<int>(integer("attention.head_count_kv", 1, kMaxHeads).value_or(shape->q_heads));
    if (shape->q_heads % shape->kv_heads != 0) {
      fail(ErrorKind::kModel, "{} is {} with {} query heads; expected a divisor of them",
           where("attention.head_count_kv"), shape->kv_heads, shape->q_heads);
    }
    const auto dim = integer("attention.key_length", 2, kMaxHeads);
    if (!dim && (shape->hidden % shape->q_heads != 0 || shape->hidden / shape->q_heads < 2)) {
      fail(ErrorKind::kModel, "{} is missing, and embedding_length {} is no multiple of head_count {}",
           where("attention.key_length"), shape->hidden, shape->q_heads);
    }
    shape->head_dim = static_cast<int>(dim.value_or(shape->hidden / shape->q_heads));
    const int64_t value_dim = integer("attention.value_length", 1, kMaxHeads).value_or(shape->head_dim);
    if (value_dim != shape->head_dim) {
      fail(ErrorKind::kModel, "{} is {} with keys of {}, which is not supported; supported: one size of both",
           where("attention.value_length"), value_dim, shape->head_dim);
    }
    if (int64_t{shape->q_heads} * shape->head_dim > kMaxWidth) {
      fail(ErrorKind::kModel, "{}: {} heads of {}; expected at most {} elements in all", where("attention.head_count"),
           shape->q_heads, shape->head_dim, kMaxWidth);
    }
  }

  void linear_attention(LinearAttentionShape* linear) const {
    linear->key_heads = static_cast<int>(required("ssm.group_count", 1, kMaxHeads));
    linear->value_heads = static_cast<int>(required("ssm.time_step_rank", 1, kMaxHeads));
    linear->key_dim = static_cast<int>(required("ssm.state_size", 1, kMaxHeads));
    linear->conv_taps = static_cast<int>(required("ssm.conv_kernel", 1, 64));
    const int64_t values = required("ssm.inner_size", 1, kMaxWidth);
    if (linear->value_heads % linear->key_heads != 0 || values % linear->value_heads != 0) {
      fail(ErrorKind::kModel,
           "{} is {} with {} value and {} key heads; expected a multiple of value heads, and those of "
           "key heads",
           where("ssm.inner_size"), values, linear->value_heads, linear->key_heads);
    }
    linear->value_dim = static_cast<int>(values / linear->value_heads);
    if (int64_t{linear->key_heads} * linear->key_dim > kMaxWidth) {
      fail(ErrorKind::kModel, "{}: {} heads of {}; expected at most {} elements in all", where("ssm.group_count"),
           linear->key_heads, linear->key_dim, kMaxWidth);
    }
  }

  float eps() const {
    const double eps = file_.required_number(key("attention.layer_norm_rms_epsilon"));
    if (!(eps >= 1e-30 && eps <= 1)) {
      fail(ErrorKind::kModel, "{} is {}; expected a number in 1e-30..1", where("attention.layer_norm_rms_epsilon"),
           eps);
    }
    return static_cast<float>(eps);
  }

  // The tokenizer's count; the architecture may repeat it.
  int64_t vocab() const {
    const auto stated = integer("vocab_size", 1, kMaxVocab);
    const auto tokens = file_.array_size("tokenizer.ggml.tokens");
    if (tokens && (*tokens < 1 || *tokens > static_cast<uint64_t>(kMaxVocab))) {
      fail(ErrorKind::kModel, "{} has {} entries; expected 1 to {}", file_.where("tokenizer.ggml.tokens"), *tokens,
           kMaxVocab);
    }
    if (stated && tokens && static_cast<uint64_t>(*stated) != *tokens) {
      fail(ErrorKind::kModel, "{} is {}, and tokenizer.ggml.tokens has {} entries; expected as many",
           where("vocab_size"), *stated, *tokens);
    }
    return stated ? *stated : tokens ? static_cast<int64_t>(*tokens) : required("vocab_size", 1, kMaxVocab);
  }

  Rope rope(const ModelShape& shape) const {
    Rope rope;
    rope.theta = file_.number(key("rope.freq_base")).value_or(10000.0);
    if (!(rope.theta > 0 && rope.theta <= 1e15))
      fail(ErrorKind::kModel, "{} is {}; expected a number above 0 and at most 1e15", where("rope.freq_base"),
           rope.theta);
    rope.rotary_dim = static_cast<int>(integer("rope.dimension_count", 2, shape.head_dim).value_or(shape.head_dim));
    if (rope.rotary_dim % 2 != 0)
      fail(ErrorKind::kModel, "{} is {}; expected an even count", where("rope.dimension_count"), rope.rotary_dim);
    // The rows of a head stand in pairs, of the whole head.
    if (shape.architecture == Architecture::kLlama && rope.rotary_dim != shape.head_dim) {
      fail(ErrorKind::kModel, "{} is {} with heads of {}, which is not supported; supported: whole heads are rotated",
           where("rope.dimension_count"), rope.rotary_dim, shape.head_dim);
    }
    rope.divisors = rope_divisors(rope.rotary_dim / 2);
    return rope;
  }

 private:
  // rope_freqs.weight: what each frequency is divided by (Llama-3.1's scaling). Empty where there is none.
  std::vector<float> rope_divisors(int count) const {
    const TensorInfo* tensor = file_.find("rope_freqs.weight");
    if (tensor == nullptr) return {};
    const std::string where = file_.path().string() + ": tensor rope_freqs.weight";
    if (tensor->type != DType::kF32 || tensor->shape != std::vector<int64_t>{count}) {
      fail(ErrorKind::kModel, "{} is {} of shape [{}]; expected F32 of shape [{}]", where, tensor->type_name,
           fmt::join(tensor->shape, ", "), count);
    }
    std::vector<float> divisors(static_cast<size_t>(count));
    file_.input().read(tensor->offset, std::as_writable_bytes(std::span(divisors)));
    for (float divisor : divisors) {
      if (!(divisor > 0 && std::isfinite(divisor)))
        fail(ErrorKind::kModel, "{} holds {}; expected numbers above 0", where, divisor);
    }
    return divisors;
  }

  const GgufFile& file_;
  std::string arch_;
};

}  // namespace

ModelShape gguf_model_shape(const GgufFile& file) {
  const Known& known = known_architecture(file);
  refuse_parts(file);
  const ShapeReader reader(file, known);
  reader.refuse_unsupported();
  ModelShape shape;
  shape.container = Container::kGguf;
  shape.architecture = known.architecture;
  shape.architecture_name = known.name;
  shape.mlp_unit = 32;  // whole blocks of the formats of 32; of those of 256 two ranks may hold the same one
  shape.hidden = reader.required("embedding_length", 2, kMaxWidth);
  shape.intermediate = reader.required("feed_forward_length", 1, kMaxWidth);
  shape.max_positions = reader.required("context_length", 1, kMaxPositions);
  shape.vocab = reader.vocab();
  reader.layers(&shape);
  reader.heads(&shape);
  shape.rms_eps = reader.eps();
  shape.tied_head = file.find("output.weight") == nullptr;
  shape.rope = reader.rope(shape);
  shape.qkv_bias = known.architecture == Architecture::kQwen2;
  shape.qk_norm = known.architecture == Architecture::kQwen3 || known.architecture == Architecture::kQwen35;
  if (known.architecture == Architecture::kQwen35) {
    shape.gated_attention = shape.negative_decay = true;
    if (std::ranges::count(shape.layer_kinds, LayerKind::kLinearAttention) > 0) reader.linear_attention(&shape.linear);
  }
  return shape;
}

}  // namespace coprime
