// A model as the planner sees it: plain counts, of the models that coprime runs and of those that it does not run yet
// (mixtures of experts, latent attention, other norms and activations).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "geometry/named_shapes.h"

namespace coprime {

struct ModelNumbers {
  std::string name;     // the architecture, as config.json or the GGUF file names it
  std::string refusal;  // why coprime does not run it yet; empty: it does
  int64_t hidden = 0, vocab = 0, max_positions = 0;
  int64_t layers = 0, attention_layers = 0, linear_layers = 0;
  bool tied_head = false;

  // Attention: query heads with a KV head each `q_heads / kv_heads` of them; in latent attention all heads share one
  // cache of kv_rank + rope_dim elements a token.
  int64_t q_heads = 0, kv_heads = 0, head_dim = 0;
  int64_t q_rows = 0;          // of q_proj, a head: twice the head's size where it also makes a gate
  int64_t extra_elements = 0;  // of an attention layer, beside its matrices: norms of q and k
  bool qkv_bias = false;
  int64_t q_rank = 0, kv_rank = 0, nope_dim = 0, rope_dim = 0, value_dim = 0;  // latent attention; kv_rank 0: none

  LinearAttentionShape linear;

  // MLPs: `mlp_layers` dense ones of a width; `expert_layers` mixtures. Each matrix is width x hidden.
  int64_t mlp_layers = 0, intermediate = 0, mlp_matrices = 3;
  int64_t expert_layers = 0, experts = 0, active_experts = 0, expert_width = 0, shared_width = 0;

  bool latent() const { return kv_rank > 0; }
  bool has_experts() const { return expert_layers > 0; }
  int64_t gqa() const { return q_heads / kv_heads; }
  // The width that a rank count has to divide: of an expert, or of the dense MLP.
  int64_t cut_width() const { return has_experts() ? expert_width : intermediate; }
};

ModelNumbers numbers_of(const ModelShape& shape);
ModelNumbers numbers_of(const NamedShape& shape);

// Of any config.json. Where coprime would refuse it (parse_model_shape), `refusal` says why. Error(kModel) for text
// that is no config, or lacks a count that no plan can do without: path, key, what was expected and found.
ModelNumbers parse_model_numbers(std::string_view json, const std::string& where);

}  // namespace coprime
