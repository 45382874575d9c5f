// What a config.json, or the metadata of a GGUF file, says about a model's mathematics. Anything that it asks for and
// that the decoders do not compute is refused by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "geometry/quantization.h"

namespace coprime {

enum class Architecture : uint8_t { kLlama, kQwen2, kQwen3, kQwen35 };

// What the tensors stand in: their names, and the order of some axes, follow from it.
enum class Container : uint8_t { kSafetensors, kGguf };

enum class LayerKind : uint8_t { kFullAttention, kLinearAttention };

struct Rope {
  double theta = 10000;
  int rotary_dim = 0;   // elements of a head that are rotated: the first ones
  bool llama3 = false;  // Llama-3.1's scaling of the frequencies
  double factor = 1, low_freq_factor = 1, high_freq_factor = 1, original_max_positions = 0;
  std::vector<float> divisors;  // of each frequency; empty: none
};

struct LinearAttentionShape {
  int key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0, conv_taps = 0;
};

struct ModelShape {
  Container container = Container::kSafetensors;
  Architecture architecture = Architecture::kLlama;
  std::string architecture_name;  // "LlamaForCausalLM"; GGUF: "llama"
  std::string tensor_prefix;      // "model." or "model.language_model."; GGUF: none
  int64_t hidden = 0, intermediate = 0, vocab = 0, max_positions = 0;
  int layers = 0, q_heads = 0, kv_heads = 0, head_dim = 0;
  float rms_eps = 0;
  bool tied_head = false;
  bool qkv_bias = false;         // Qwen2
  bool qk_norm = false;          // Qwen3, Qwen3.5
  bool gated_attention = false;  // Qwen3.5: q_proj holds [query | gate] per head
  bool negative_decay = false;   // GGUF of Qwen3.5: A_log is stored as -exp(A_log)
  int64_t mlp_unit = 16;         // of the MLP's width a rank, as the weights' format wants it
  bool norm_plus_one = false;    // Qwen3.5: block norms and q/k norms are stored as w, and multiply by 1 + w
  int mtp_layers = 0;            // present and unused
  Rope rope;
  std::vector<LayerKind> layer_kinds;
  LinearAttentionShape linear;  // zero where no layer is linear
  Quantization quantization;    // of a safetensors checkpoint's matrices

  int gqa() const { return q_heads / kv_heads; }
  // Rows of q_proj per head.
  int q_rows_per_head() const { return gated_attention ? 2 * head_dim : head_dim; }
};

// Reads `model`/config.json, or the metadata of a GGUF file. Error(kModel) names the file, the key, what was found and
// what is supported.
ModelShape read_model_shape(const std::filesystem::path& model);

// The same of a config.json's text; `where` names it in errors.
ModelShape parse_model_shape(std::string_view json, const std::string& where);

// inv_freq [rotary_dim / 2] in float as transformers computes it (theta^(-2i/d), with Llama-3's scaling), portable
// bits.
std::vector<float> rope_frequencies(const Rope& rope);

}  // namespace coprime
