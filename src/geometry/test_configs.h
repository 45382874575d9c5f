// Small sound config.json texts for tests, with keys replaced, added or (by an empty value) left out.
#pragma once

#include <map>
#include <string>

#include "geometry/model_shape.h"

namespace coprime {

using Keys = std::map<std::string, std::string>;  // key -> JSON text

inline std::string json_text(const Keys& keys) {
  std::string text;
  for (const auto& [key, value] : keys) {
    if (!value.empty()) text += (text.empty() ? "{\"" : ",\"") + key + "\":" + value;
  }
  return text.empty() ? "{}" : text + "}";
}

inline Keys base_keys(const std::string& family) {
  Keys keys = {{"hidden_size", "96"},      {"intermediate_size", "136"}, {"vocab_size", "331"},
               {"num_hidden_layers", "4"}, {"num_attention_heads", "6"}, {"max_position_embeddings", "512"},
               {"head_dim", "16"},         {"num_key_value_heads", "2"}};
  if (family == "llama") keys.insert({{"architectures", R"(["LlamaForCausalLM"])"}, {"model_type", R"("llama")"}});
  if (family == "qwen2") keys.insert({{"architectures", R"(["Qwen2ForCausalLM"])"}, {"model_type", R"("qwen2")"}});
  if (family == "qwen3") keys.insert({{"architectures", R"(["Qwen3ForCausalLM"])"}, {"model_type", R"("qwen3")"}});
  if (family == "qwen35") {
    keys.insert({{"architectures", R"(["Qwen3_5ForCausalLM"])"},
                 {"model_type", R"("qwen3_5_text")"},
                 {"linear_num_key_heads", "4"},
                 {"linear_num_value_heads", "12"},
                 {"linear_key_head_dim", "16"},
                 {"linear_value_head_dim", "24"},
                 {"linear_conv_kernel_dim", "4"},
                 {"layer_types", R"(["linear_attention","linear_attention","linear_attention","full_attention"])"}});
  }
  return keys;
}

inline std::string config(const std::string& family, const Keys& changes) {
  Keys keys = base_keys(family);
  for (const auto& [key, value] : changes) keys[key] = value;
  return json_text(keys);
}

// The multimodal wrapper: `outside` at the top, `inside` in text_config.
inline std::string wrapped(const Keys& outside, const Keys& inside) {
  Keys text = base_keys("qwen35");
  text.erase("architectures");
  for (const auto& [key, value] : inside) text[key] = value;
  Keys top = {{"architectures", R"(["Qwen3_5ForConditionalGeneration"])"},
              {"model_type", R"("qwen3_5")"},
              {"text_config", json_text(text)}};
  for (const auto& [key, value] : outside) top[key] = value;
  return json_text(top);
}

inline ModelShape parse(const std::string& text) { return parse_model_shape(text, "config.json"); }

}  // namespace coprime
