// Shapes of models that coprime runs, small, for tests of the planner.
#pragma once

#include <vector>

#include "geometry/model_shape.h"

namespace coprime {

inline ModelShape dense_shape(int q_heads, int kv_heads) {
  ModelShape shape{.architecture = Architecture::kLlama,
                   .architecture_name = "LlamaForCausalLM",
                   .tensor_prefix = "model.",
                   .hidden = 576,
                   .intermediate = 1536,
                   .vocab = 49152,
                   .max_positions = 8192,
                   .layers = 4,
                   .q_heads = q_heads,
                   .kv_heads = kv_heads,
                   .head_dim = 64,
                   .rms_eps = 1e-5f,
                   .tied_head = true};
  shape.rope.rotary_dim = 64;
  shape.layer_kinds.assign(4, LayerKind::kFullAttention);
  return shape;
}

inline ModelShape hybrid_shape() {
  ModelShape shape{.architecture = Architecture::kQwen35,
                   .architecture_name = "Qwen3_5ForCausalLM",
                   .tensor_prefix = "model.",
                   .hidden = 256,
                   .intermediate = 544,
                   .vocab = 1000,
                   .max_positions = 4096,
                   .layers = 4,
                   .q_heads = 24,
                   .kv_heads = 4,
                   .head_dim = 32,
                   .rms_eps = 1e-6f,
                   .qk_norm = true,
                   .gated_attention = true,
                   .norm_plus_one = true};
  shape.rope.rotary_dim = 8;
  shape.layer_kinds.assign(3, LayerKind::kLinearAttention);
  shape.layer_kinds.push_back(LayerKind::kFullAttention);
  shape.linear = {16, 48, 16, 16, 4};
  return shape;
}

inline std::vector<ModelShape> runnable_shapes() {
  return {dense_shape(9, 3), dense_shape(32, 8), dense_shape(14, 2), hybrid_shape()};
}

}  // namespace coprime
