#include "geometry/rules.h"

#include <algorithm>

namespace coprime {
namespace {

class RuleList {
 public:
  explicit RuleList(const ModelShape& shape) {
    full_ = static_cast<int>(std::ranges::count(shape.layer_kinds, LayerKind::kFullAttention));
    linear_ = shape.layers - full_;
  }

  void add(TensorId id, Scope scope, std::string suffix, Operation op, std::optional<Axis> axis,
           std::vector<int64_t> shape) {
    const int expected = count(scope);
    if (expected > 0) rules_.push_back({id, std::move(suffix), scope, op, axis, expected, std::move(shape)});
  }
  void replicate(TensorId id, Scope scope, std::string suffix, int64_t size) {
    add(id, scope, std::move(suffix), Operation::kReplicate, std::nullopt, {size});
  }
  // A projection back to the hidden size, whose inputs are cut along `axis`.
  void back(TensorId id, Scope scope, std::string suffix, bool exact, Axis axis, int64_t hidden, int64_t inputs) {
    if (exact) {
      add(id, scope, std::move(suffix), Operation::kRows, Axis::kHidden, {hidden, inputs});
    } else {
      add(id, scope, std::move(suffix), Operation::kColumns, axis, {hidden, inputs});
    }
  }
  std::vector<Rule> take() { return std::move(rules_); }

 private:
  int count(Scope scope) const {
    switch (scope) {
      case Scope::kModel:
        return 1;
      case Scope::kEveryLayer:
        return full_ + linear_;
      case Scope::kFullLayers:
        return full_;
      case Scope::kLinearLayers:
        break;
    }
    return linear_;
  }

  int full_ = 0, linear_ = 0;
  std::vector<Rule> rules_;
};

void add_full_attention(const ModelShape& s, bool exact, RuleList* list) {
  constexpr Scope kScope = Scope::kFullLayers;
  const int64_t q_rows = int64_t{s.q_heads} * s.q_rows_per_head(), kv_rows = int64_t{s.kv_heads} * s.head_dim;
  list->add(TensorId::kQ, kScope, "self_attn.q_proj.weight", Operation::kRows, Axis::kQuery, {q_rows, s.hidden});
  list->add(TensorId::kK, kScope, "self_attn.k_proj.weight", Operation::kRows, Axis::kKv, {kv_rows, s.hidden});
  list->add(TensorId::kV, kScope, "self_attn.v_proj.weight", Operation::kRows, Axis::kKv, {kv_rows, s.hidden});
  if (s.qkv_bias) {
    list->add(TensorId::kQBias, kScope, "self_attn.q_proj.bias", Operation::kRows, Axis::kQuery, {q_rows});
    list->add(TensorId::kKBias, kScope, "self_attn.k_proj.bias", Operation::kRows, Axis::kKv, {kv_rows});
    list->add(TensorId::kVBias, kScope, "self_attn.v_proj.bias", Operation::kRows, Axis::kKv, {kv_rows});
  }
  if (s.qk_norm) {
    list->replicate(TensorId::kQNorm, kScope, "self_attn.q_norm.weight", s.head_dim);
    list->replicate(TensorId::kKNorm, kScope, "self_attn.k_norm.weight", s.head_dim);
  }
  list->back(TensorId::kO, kScope, "self_attn.o_proj.weight", exact, Axis::kQueryOut, s.hidden,
             int64_t{s.q_heads} * s.head_dim);
}

void add_linear_attention(const ModelShape& s, bool exact, RuleList* list) {
  constexpr Scope kScope = Scope::kLinearLayers;
  const LinearAttentionShape& l = s.linear;
  const int64_t values = int64_t{l.value_heads} * l.value_dim;
  const int64_t channels = 2 * int64_t{l.key_heads} * l.key_dim + values;
  list->add(TensorId::kInQkv, kScope, "linear_attn.in_proj_qkv.weight", Operation::kSections, Axis::kConvolution,
            {channels, s.hidden});
  list->add(TensorId::kInZ, kScope, "linear_attn.in_proj_z.weight", Operation::kRows, Axis::kValueDim,
            {values, s.hidden});
  list->add(TensorId::kInB, kScope, "linear_attn.in_proj_b.weight", Operation::kRows, Axis::kValueHeads,
            {l.value_heads, s.hidden});
  list->add(TensorId::kInA, kScope, "linear_attn.in_proj_a.weight", Operation::kRows, Axis::kValueHeads,
            {l.value_heads, s.hidden});
  list->add(TensorId::kConv, kScope, "linear_attn.conv1d.weight", Operation::kSections, Axis::kConvolution,
            {channels, 1, l.conv_taps});
  list->add(TensorId::kALog, kScope, "linear_attn.A_log", Operation::kRows, Axis::kValueHeads, {l.value_heads});
  list->add(TensorId::kDtBias, kScope, "linear_attn.dt_bias", Operation::kRows, Axis::kValueHeads, {l.value_heads});
  list->replicate(TensorId::kLinearNorm, kScope, "linear_attn.norm.weight", l.value_dim);
  list->back(TensorId::kOut, kScope, "linear_attn.out_proj.weight", exact, Axis::kValueDim, s.hidden, values);
}

// The name of a rule's tensor in a GGUF file; of a layer without "blk.N.".
std::string_view gguf_name(TensorId id, Architecture architecture) {
  switch (id) {
    case TensorId::kEmbedding:
      return "token_embd.weight";
    case TensorId::kFinalNorm:
      return "output_norm.weight";
    case TensorId::kHead:
      return "output.weight";
    case TensorId::kInputNorm:
      return "attn_norm.weight";
    case TensorId::kPostNorm:
      return architecture == Architecture::kQwen35 ? "post_attention_norm.weight" : "ffn_norm.weight";
    case TensorId::kQ:
      return "attn_q.weight";
    case TensorId::kK:
      return "attn_k.weight";
    case TensorId::kV:
      return "attn_v.weight";
    case TensorId::kQBias:
      return "attn_q.bias";
    case TensorId::kKBias:
      return "attn_k.bias";
    case TensorId::kVBias:
      return "attn_v.bias";
    case TensorId::kO:
      return "attn_output.weight";
    case TensorId::kQNorm:
      return "attn_q_norm.weight";
    case TensorId::kKNorm:
      return "attn_k_norm.weight";
    case TensorId::kGate:
      return "ffn_gate.weight";
    case TensorId::kUp:
      return "ffn_up.weight";
    case TensorId::kDown:
      return "ffn_down.weight";
    case TensorId::kInQkv:
      return "attn_qkv.weight";
    case TensorId::kInZ:
      return "attn_gate.weight";
    case TensorId::kInB:
      return "ssm_beta.weight";
    case TensorId::kInA:
      return "ssm_alpha.weight";
    case TensorId::kConv:
      return "ssm_conv1d.weight";
    case TensorId::kALog:
      return "ssm_a";
    case TensorId::kDtBias:
      return "ssm_dt.bias";
    case TensorId::kLinearNorm:
      return "ssm_norm.weight";
    case TensorId::kMtpFc:
      return "nextn.eh_proj.weight";
    case TensorId::kMtpEmbeddingNorm:
      return "nextn.enorm.weight";
    case TensorId::kMtpHiddenNorm:
      return "nextn.hnorm.weight";
    case TensorId::kMtpNorm:
      return "nextn.shared_head_norm.weight";
    case TensorId::kOut:
      break;
  }
  return "ssm_out.weight";
}

// What a GGUF converter changes: names, the axis of one that it drops from the convolution, the order of some axes.
void adapt_to_gguf(const ModelShape& s, Rule* rule) {
  rule->suffix = gguf_name(rule->id, s.architecture);
  const auto is_one_of = [rule](std::initializer_list<TensorId> ids) { return std::ranges::count(ids, rule->id) > 0; };
  if (rule->id == TensorId::kConv) rule->shape = {rule->shape[0], rule->shape[2]};
  if (s.architecture == Architecture::kLlama &&
      is_one_of({TensorId::kQ, TensorId::kK, TensorId::kQBias, TensorId::kKBias})) {
    rule->row_order = FileOrder::kRotaryPairs;
  }
  if (is_one_of({TensorId::kInQkv, TensorId::kInZ, TensorId::kInB, TensorId::kInA, TensorId::kConv, TensorId::kALog,
                 TensorId::kDtBias})) {
    rule->row_order = FileOrder::kTiledHeads;
  }
  if (rule->id == TensorId::kOut) rule->column_order = FileOrder::kTiledHeads;
}

}  // namespace

std::vector<Rule> make_rules(const ModelShape& s, bool exact) {
  RuleList list(s);
  list.add(TensorId::kEmbedding, Scope::kModel, s.tensor_prefix + "embed_tokens.weight", Operation::kRows, Axis::kVocab,
           {s.vocab, s.hidden});
  list.replicate(TensorId::kFinalNorm, Scope::kModel, s.tensor_prefix + "norm.weight", s.hidden);
  if (!s.tied_head) {
    list.add(TensorId::kHead, Scope::kModel, "lm_head.weight", Operation::kRows, Axis::kVocab, {s.vocab, s.hidden});
  }
  list.replicate(TensorId::kInputNorm, Scope::kEveryLayer, "input_layernorm.weight", s.hidden);
  list.replicate(TensorId::kPostNorm, Scope::kEveryLayer, "post_attention_layernorm.weight", s.hidden);
  add_full_attention(s, exact, &list);
  add_linear_attention(s, exact, &list);
  list.add(TensorId::kGate, Scope::kEveryLayer, "mlp.gate_proj.weight", Operation::kRows, Axis::kIntermediate,
           {s.intermediate, s.hidden});
  list.add(TensorId::kUp, Scope::kEveryLayer, "mlp.up_proj.weight", Operation::kRows, Axis::kIntermediate,
           {s.intermediate, s.hidden});
  list.back(TensorId::kDown, Scope::kEveryLayer, "mlp.down_proj.weight", exact, Axis::kIntermediate, s.hidden,
            s.intermediate);
  std::vector<Rule> rules = list.take();
  if (s.container == Container::kGguf) {
    for (Rule& rule : rules) adapt_to_gguf(s, &rule);
  }
  return rules;
}

std::vector<MtpTensor> mtp_tensors(const ShardPlan& plan) {
  const ModelShape& s = plan.shape();
  const bool gguf = s.container == Container::kGguf;
  std::vector<MtpTensor> tensors;
  const auto add_own = [&](TensorId id, std::string_view name, std::vector<int64_t> shape) {
    Rule rule{id, std::string(name), Scope::kModel, Operation::kReplicate, std::nullopt, 1, std::move(shape)};
    if (gguf) adapt_to_gguf(s, &rule);
    tensors.push_back({gguf ? fmt::format("blk.{}.{}", s.layers, rule.suffix) : rule.suffix, rule, s.layers});
  };
  ModelShape layer = s;  // the head's layers, whatever the decoder's are
  layer.layers = 1;
  layer.layer_kinds = {LayerKind::kFullAttention};
  const std::vector<Rule> rules = make_rules(layer, plan.options().exact);
  for (int i = 0; i < s.mtp_layers; ++i) {
    for (Rule rule : rules) {
      if (rule.scope != Scope::kEveryLayer && rule.scope != Scope::kFullLayers) continue;
      rule.expected = s.mtp_layers;
      const std::string name =
          gguf ? fmt::format("blk.{}.{}", s.layers + i, rule.suffix) : fmt::format("mtp.layers.{}.{}", i, rule.suffix);
      tensors.push_back({name, std::move(rule), s.layers + i});
    }
  }
  if (s.mtp_layers == 0) return tensors;
  add_own(TensorId::kMtpFc, "mtp.fc.weight", {s.hidden, 2 * s.hidden});
  add_own(TensorId::kMtpEmbeddingNorm, "mtp.pre_fc_norm_embedding.weight", {s.hidden});
  add_own(TensorId::kMtpHiddenNorm, "mtp.pre_fc_norm_hidden.weight", {s.hidden});
  add_own(TensorId::kMtpNorm, "mtp.norm.weight", {s.hidden});
  return tensors;
}

}  // namespace coprime
