// Model shapes for tests: of dense decoders from their counts, and of the 27B hybrid that the seed's tables are about.
#pragma once

#include "geometry/model_shape.h"

namespace coprime {

struct DenseCounts {
  int q_heads, kv_heads, head_dim;
  int64_t intermediate, vocab;
  int64_t hidden = 128;
  int layers = 2;
};

inline ModelShape dense_shape(const DenseCounts& counts) {
  ModelShape shape;
  shape.architecture_name = "LlamaForCausalLM";
  shape.tensor_prefix = "model.";
  shape.hidden = counts.hidden;
  shape.intermediate = counts.intermediate;
  shape.vocab = counts.vocab;
  shape.max_positions = 1024;
  shape.layers = counts.layers;
  shape.q_heads = counts.q_heads;
  shape.kv_heads = counts.kv_heads;
  shape.head_dim = counts.head_dim;
  shape.rms_eps = 1e-6f;
  shape.rope.rotary_dim = counts.head_dim;
  shape.layer_kinds.assign(static_cast<size_t>(counts.layers), LayerKind::kFullAttention);
  return shape;
}

// Layer i is full attention where (i + 1) % 4 == 0.
inline ModelShape hybrid_shape(const DenseCounts& counts, const LinearAttentionShape& linear) {
  ModelShape shape = dense_shape(counts);
  shape.architecture = Architecture::kQwen35;
  shape.architecture_name = "Qwen3_5ForConditionalGeneration";
  shape.tensor_prefix = "model.language_model.";
  shape.qk_norm = shape.gated_attention = shape.norm_plus_one = true;
  shape.linear = linear;
  for (size_t i = 0; i < shape.layer_kinds.size(); ++i) {
    if ((i + 1) % 4 != 0) shape.layer_kinds[i] = LayerKind::kLinearAttention;
  }
  return shape;
}

inline ModelShape qwen38_27b() {
  ModelShape shape = hybrid_shape({24, 4, 256, 17408, 248320, 5120, 64}, {16, 48, 128, 128, 4});
  shape.rope = {.theta = 1e7, .rotary_dim = 64};
  return shape;
}

}  // namespace coprime
