#include "plan/load.h"

#include <cmath>

namespace coprime {
namespace {

double real(int64_t count) { return static_cast<double>(count); }

double attention_parameters(const ModelNumbers& m, const RankLoad& load) {
  const double hidden = real(m.hidden);
  if (m.latent()) {
    const double per_head =
        real(m.q_rank > 0 ? m.q_rank : m.hidden) * real(m.q_rows) + real(m.kv_rank) * real(m.nope_dim + m.value_dim);
    return real(load.q_heads) * per_head + real(load.o_heads) * real(m.value_dim) * hidden;
  }
  const double kv_rows = 2 * real(load.kv_heads * m.head_dim), q_rows = real(load.q_heads * m.q_rows);
  return (q_rows + kv_rows + real(load.o_heads * m.head_dim)) * hidden + (m.qkv_bias ? q_rows + kv_rows : 0);
}

// q, k, v, z, b, a and the projection back; convolution, decay and bias.
double linear_parameters(const ModelNumbers& m, const RankLoad& load) {
  if (m.linear_layers == 0) return 0;
  const LinearAttentionShape& l = m.linear;
  const double ratio = real(l.value_heads) / l.key_heads, values = ratio * l.value_dim;
  const double channels = 2 * real(l.key_dim) + values;
  return real(load.key_heads) *
         ((channels + values + 2 * ratio + values) * real(m.hidden) + channels * l.conv_taps + 2 * ratio);
}

double latent_parameters(const ModelNumbers& m) {
  return m.latent() ? real(m.hidden) * real(m.q_rank + m.kv_rank + m.rope_dim) + real(m.q_rank + m.kv_rank) : 0;
}

}  // namespace

RankLoad whole_load(const ModelNumbers& m) {
  return {.q_heads = m.q_heads,
          .kv_heads = m.kv_heads,
          .o_heads = m.q_heads,
          .key_heads = m.linear.key_heads,
          .width = m.intermediate,
          .expert_width = m.expert_width,
          .shared_width = m.shared_width,
          .vocab = m.vocab};
}

Parameters parameters_of(const ModelNumbers& m, const RankLoad& load) {
  const double hidden = real(m.hidden), matrices = real(m.mlp_matrices);
  Parameters p;
  p.attention = load.layers * real(m.attention_layers) * attention_parameters(m, load);
  p.linear = load.layers * real(m.linear_layers) * linear_parameters(m, load);
  p.mlp =
      load.layers * matrices * hidden * (real(m.mlp_layers * load.width) + real(m.expert_layers * load.shared_width));
  p.experts = load.layers * real(m.expert_layers) * real(m.experts) * matrices * hidden * real(load.expert_width);
  p.other = load.layers * (real(m.layers) * 2 * hidden +
                           real(m.attention_layers) * (real(m.extra_elements) + latent_parameters(m)) +
                           real(m.linear_layers) * m.linear.value_dim + real(m.expert_layers * m.experts) * hidden) +
            hidden;
  p.embedding = real(load.vocab) * hidden;
  p.head = m.tied_head ? 0 : p.embedding;
  return p;
}

Parameters read_in_step(const ModelNumbers& m, const RankLoad& load, int64_t batch) {
  Parameters p = parameters_of(m, load);
  if (!m.tied_head) p.embedding = 0;
  if (m.has_experts()) {
    const double missed = std::pow(1 - real(m.active_experts) / real(m.experts), real(batch));
    p.experts *= 1 - missed;
  }
  return p;
}

double weight_bytes(const Parameters& p, const PlanFormat& format) {
  const bool table = format.table_bits > 0 && p.head > 0;  // the embedding has a type of its own
  return ((p.attention + p.linear + p.mlp + p.experts) * format.bits + (p.other + p.head) * format.other_bits +
          p.embedding * (table ? format.table_bits : format.other_bits)) /
         8;
}

double kv_elements(const ModelNumbers& m, const RankLoad& load) {
  const double row = m.latent() ? real(m.kv_rank + m.rope_dim) : 2 * real(load.kv_heads * m.head_dim);
  return load.layers * load.tokens * real(m.attention_layers) * row;
}

double state_floats(const ModelNumbers& m, const RankLoad& load) {
  if (m.linear_layers == 0) return 0;
  const LinearAttentionShape& l = m.linear;
  const double ratio = real(l.value_heads) / l.key_heads, values = ratio * l.value_dim;
  const double recurrent = ratio * l.key_dim * l.value_dim,
               convolution = (2 * real(l.key_dim) + values) * (l.conv_taps - 1);
  return load.layers * real(m.linear_layers) * real(load.key_heads) * (recurrent + convolution);
}

}  // namespace coprime
