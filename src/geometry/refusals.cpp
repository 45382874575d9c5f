// Which keys of config.json would change the mathematics. A key stands here with the values that change nothing; any
// other value is refused by name.
#include <array>

#include "base/error.h"
#include "geometry/config_parts.h"

namespace coprime {
namespace {

enum class Neutral : uint8_t {
  kFalse,     // absent, false or 0
  kTrue,      // absent or true
  kOne,       // absent or 1
  kNoObject,  // absent, or an empty object or list
};

struct Refusal {
  std::string_view key;
  Neutral neutral;
  std::string_view supported;
};

constexpr auto kRefusals = std::to_array<Refusal>({
    {"compression_config", Neutral::kNoObject, "the key quantization_config"},
    {"use_sliding_window", Neutral::kFalse, "full attention"},
    {"mlp_bias", Neutral::kFalse, "an MLP without biases"},
    {"num_experts", Neutral::kFalse, "dense MLPs"},
    {"num_local_experts", Neutral::kFalse, "dense MLPs"},
    {"n_routed_experts", Neutral::kFalse, "dense MLPs"},
    {"attn_logit_softcapping", Neutral::kFalse, "attention without soft caps"},
    {"final_logit_softcapping", Neutral::kFalse, "logits without soft caps"},
    {"logit_softcapping", Neutral::kFalse, "logits without soft caps"},
    {"attention_multiplier", Neutral::kFalse, "scores scaled by head_dim^-0.5"},
    {"query_pre_attn_scalar", Neutral::kFalse, "scores scaled by head_dim^-0.5"},
    {"scale_attn_by_inverse_layer_idx", Neutral::kFalse, "scores scaled by head_dim^-0.5"},
    {"attn_scale", Neutral::kFalse, "scores scaled by head_dim^-0.5"},
    {"embedding_multiplier", Neutral::kOne, "embeddings as they are"},
    {"scale_emb", Neutral::kOne, "embeddings as they are"},
    {"scale_embedding", Neutral::kFalse, "embeddings as they are"},
    {"embedding_scale", Neutral::kOne, "embeddings as they are"},
    {"residual_multiplier", Neutral::kOne, "plain residuals"},
    {"scale_depth", Neutral::kFalse, "plain residuals"},
    {"logit_scale", Neutral::kOne, "logits as they are"},
    {"logits_scaling", Neutral::kOne, "logits as they are"},
    {"attn_temperature_tuning", Neutral::kFalse, "scores of one temperature"},
    {"use_bidirectional_attention", Neutral::kFalse, "causal attention"},
    {"is_causal", Neutral::kTrue, "causal attention"},
    {"alibi", Neutral::kFalse, "rotary positions"},
    {"clip_qkv", Neutral::kFalse, "queries, keys and values as they are"},
    {"use_attention_sinks", Neutral::kFalse, "softmax over tokens only"},
    {"no_rope_layers", Neutral::kNoObject, "rotary positions in every layer"},
    {"layer_norm_type", Neutral::kNoObject, "RMSNorm"},
    {"hidden_activation", Neutral::kNoObject, "the key hidden_act with silu"},
    {"attn_output_gate", Neutral::kTrue, "a gate on the attention's output"},  // Qwen3.5 alone
});

bool is_neutral(simdjson::dom::element value, Neutral neutral) {
  bool truth = false;
  double number = 0;
  switch (neutral) {
    case Neutral::kFalse:
      return value.get(truth) == simdjson::SUCCESS ? !truth : value.get(number) == simdjson::SUCCESS && number == 0;
    case Neutral::kTrue:
      return value.get(truth) == simdjson::SUCCESS && truth;
    case Neutral::kOne:
      return value.get(number) == simdjson::SUCCESS && number == 1;
    case Neutral::kNoObject:
      break;
  }
  simdjson::dom::object object;
  simdjson::dom::array array;
  if (value.get(object) == simdjson::SUCCESS) return object.size() == 0;
  return value.get(array) == simdjson::SUCCESS && array.size() == 0;
}

void refuse(const JsonObject& keys, const Refusal& refusal) {
  const auto value = keys.find(refusal.key);
  if (!value || is_neutral(*value, refusal.neutral)) return;
  fail(ErrorKind::kModel, "{} is {}, which is not supported; supported: {}", keys.path(refusal.key), describe(*value),
       refusal.supported);
}

void refuse_word(const JsonObject& keys, std::string_view key, std::initializer_list<std::string_view> supported) {
  const auto word = keys.string(key);
  if (!word) return;
  for (std::string_view allowed : supported) {
    if (*word == allowed) return;
  }
  fail(ErrorKind::kModel, "{} is \"{}\", which is not supported; supported: {}", keys.path(key), printable(*word),
       *supported.begin());
}

}  // namespace

void refuse_unsupported(Architecture architecture, const JsonObject& root, const JsonObject& text) {
  for (const Refusal& refusal : kRefusals) {
    if (refusal.key == "attn_output_gate" && architecture != Architecture::kQwen35) {
      refuse(text, {refusal.key, Neutral::kFalse, "attention without an output gate in this architecture"});
      continue;
    }
    refuse(root, refusal);
    refuse(text, refusal);
  }
  // Qwen2 has biases on q, k and v whatever the key says (transformers does not read it there).
  if (architecture != Architecture::kQwen2) {
    refuse(text, {"attention_bias", Neutral::kFalse, "attention without biases in this architecture"});
  }
  refuse_word(text, "hidden_act", {"silu"});
  refuse_word(text, "output_gate_type", {"swish", "silu"});
}

}  // namespace coprime
