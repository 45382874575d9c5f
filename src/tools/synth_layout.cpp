#include "tools/synth_layout.h"

#include <functional>
#include <numeric>

#include "base/error.h"
#include "geometry/shard_plan.h"

namespace coprime {
namespace {

constexpr float kDeviation = 0.02f;
constexpr int64_t kFp8Side = 128, kMxBlock = 32;

// What a tensor is for decides what it holds.
enum class Role : uint8_t {
  kMatrix,       // of a linear layer; quantised where the format says so
  kPlain,        // any other weight: embedding, head, bias
  kSmall,        // a matrix that DeltaNet reads gates with: FP8 in blocks leaves it as it is
  kNormOne,      // multiplies by w
  kNormZero,     // multiplies by 1 + w
  kConvolution,  // a few taps
  kDecay,        // A_log
  kStepBias,     // dt_bias
};

enum class Storage : uint8_t { kBf16, kF32, kMxfp4, kFp8Block, kFp8Channel };

Storage storage_of(SynthFormat format) {
  switch (format) {
    case SynthFormat::kF32:
      return Storage::kF32;
    case SynthFormat::kQuarkMxfp4:
      return Storage::kMxfp4;
    case SynthFormat::kFp8Block:
      return Storage::kFp8Block;
    case SynthFormat::kFp8Channel:
      return Storage::kFp8Channel;
    case SynthFormat::kBf16:
      break;
  }
  return Storage::kBf16;
}

class TensorList {
 public:
  // `plain`: how everything that is not quantised is stored.
  explicit TensorList(SynthFormat format) : float_(format == SynthFormat::kF32) {}

  void add(Role role, const std::string& name, std::vector<int64_t> shape, Storage storage) {
    const bool matrix = role == Role::kMatrix || (role == Role::kSmall && storage != Storage::kFp8Block);
    if (matrix && storage == Storage::kMxfp4) return add_mxfp4(name, shape);
    if (matrix && storage == Storage::kFp8Block) return add_fp8_block(name, shape);
    if (matrix && storage == Storage::kFp8Channel) return add_fp8_channel(name, shape);
    switch (role) {
      case Role::kNormOne:
        return add_float(name, std::move(shape), false, 1.0f, 0.05f);
      case Role::kNormZero:
        return add_float(name, std::move(shape), false, 0.0f, 0.05f);
      case Role::kConvolution:
        return add_float(name, std::move(shape), false, 0.0f, 0.3f);
      case Role::kDecay:  // e^w from 1 to 16
        return add_float(name, std::move(shape), true, 1.386f, 1.386f);
      case Role::kStepBias:  // softplus from 0.007 to 0.3
        return add_float(name, std::move(shape), true, -3.0f, 2.0f);
      default:
        return add_float(name, std::move(shape), false, 0.0f, kDeviation);
    }
  }
  std::vector<SynthTensor> take() { return std::move(tensors_); }

 private:
  void add_float(const std::string& name, std::vector<int64_t> shape, bool uniform, float center, float spread) {
    const Content kind = float_ ? (uniform ? Content::kUniformF32 : Content::kNormalF32)
                                : (uniform ? Content::kUniformBf16 : Content::kNormalBf16);
    tensors_.push_back({name, float_ ? "F32" : "BF16", std::move(shape), {kind, center, spread}});
  }

  // "a.weight" -> "a" + suffix
  static std::string beside(const std::string& name, std::string_view suffix) {
    return name.substr(0, name.size() - std::string_view(".weight").size()) + std::string(suffix);
  }

  void add_mxfp4(const std::string& name, const std::vector<int64_t>& shape) {
    if (shape[1] % kMxBlock != 0) {
      fail(ErrorKind::kUsage, "{} has {} columns, and MXFP4 needs whole blocks of {}: choose another --format", name,
           shape[1], kMxBlock);
    }
    constexpr float kExponent = -7;  // 2^-7 times the codes' deviation is 0.023
    tensors_.push_back({name, "U8", {shape[0], shape[1] / 2}, {Content::kE2m1Pairs}});
    tensors_.push_back(
        {beside(name, ".weight_scale"), "U8", {shape[0], shape[1] / kMxBlock}, {Content::kE8m0Scales, kExponent}});
  }

  static constexpr float kFp8Scale = static_cast<float>(kDeviation / kE4m3Deviation);

  void add_fp8_block(const std::string& name, const std::vector<int64_t>& shape) {
    const auto blocks = [](int64_t size) { return (size + kFp8Side - 1) / kFp8Side; };
    tensors_.push_back({name, "F8_E4M3", shape, {Content::kE4m3}});
    tensors_.push_back({beside(name, ".weight_scale_inv"),
                        "BF16",
                        {blocks(shape[0]), blocks(shape[1])},
                        {Content::kUniformBf16, kFp8Scale, kFp8Scale / 4}});
  }

  void add_fp8_channel(const std::string& name, const std::vector<int64_t>& shape) {
    tensors_.push_back({name, "F8_E4M3", shape, {Content::kE4m3}});
    tensors_.push_back(
        {beside(name, ".weight_scale"), "F32", {shape[0]}, {Content::kUniformF32, kFp8Scale, kFp8Scale / 4}});
  }

  bool float_;
  std::vector<SynthTensor> tensors_;
};

Role role_of(const Rule& rule, const ModelShape& shape) {
  switch (rule.id) {
    case TensorId::kEmbedding:
    case TensorId::kHead:
    case TensorId::kQBias:
    case TensorId::kKBias:
    case TensorId::kVBias:
      return Role::kPlain;
    case TensorId::kFinalNorm:
    case TensorId::kInputNorm:
    case TensorId::kPostNorm:
    case TensorId::kQNorm:
    case TensorId::kKNorm:
      return shape.norm_plus_one ? Role::kNormZero : Role::kNormOne;
    case TensorId::kLinearNorm:
      return Role::kNormOne;
    case TensorId::kInB:
    case TensorId::kInA:
      return Role::kSmall;
    case TensorId::kConv:
      return Role::kConvolution;
    case TensorId::kALog:
      return Role::kDecay;
    case TensorId::kDtBias:
      return Role::kStepBias;
    default:
      return Role::kMatrix;
  }
}

// One full-attention layer with a dense MLP for each MTP layer, over both the embedding and the hidden state.
void add_mtp(const ModelShape& s, Storage storage, TensorList* list) {
  const int64_t q_rows = int64_t{s.q_heads} * s.q_rows_per_head(), kv_rows = int64_t{s.kv_heads} * s.head_dim;
  // FP8 in blocks leaves the joining matrix as it is.
  list->add(storage == Storage::kFp8Block ? Role::kPlain : Role::kMatrix, "mtp.fc.weight", {s.hidden, 2 * s.hidden},
            storage);
  for (int layer = 0; layer < s.mtp_layers; ++layer) {
    const std::string prefix = fmt::format("mtp.layers.{}.", layer);
    const auto norm = [&](const char* name, int64_t size) {
      list->add(Role::kNormZero, prefix + name, {size}, storage);
    };
    const auto matrix = [&](const char* name, int64_t rows, int64_t columns) {
      list->add(Role::kMatrix, prefix + name, {rows, columns}, storage);
    };
    norm("input_layernorm.weight", s.hidden);
    matrix("self_attn.q_proj.weight", q_rows, s.hidden);
    matrix("self_attn.k_proj.weight", kv_rows, s.hidden);
    matrix("self_attn.v_proj.weight", kv_rows, s.hidden);
    norm("self_attn.q_norm.weight", s.head_dim);
    norm("self_attn.k_norm.weight", s.head_dim);
    matrix("self_attn.o_proj.weight", s.hidden, int64_t{s.q_heads} * s.head_dim);
    norm("post_attention_layernorm.weight", s.hidden);
    matrix("mlp.gate_proj.weight", s.intermediate, s.hidden);
    matrix("mlp.up_proj.weight", s.intermediate, s.hidden);
    matrix("mlp.down_proj.weight", s.hidden, s.intermediate);
  }
  list->add(Role::kNormZero, "mtp.norm.weight", {s.hidden}, storage);
  list->add(Role::kNormZero, "mtp.pre_fc_norm_embedding.weight", {s.hidden}, storage);
  list->add(Role::kNormZero, "mtp.pre_fc_norm_hidden.weight", {s.hidden}, storage);
}

// The tower of Qwen3-VL's kind; never quantised.
void add_vision(const VisionShape& v, int64_t text_hidden, TensorList* list) {
  const std::string prefix = "model.visual.";
  const auto plain = [&](const std::string& name, std::vector<int64_t> shape) {
    list->add(Role::kPlain, prefix + name, std::move(shape), Storage::kBf16);
  };
  const auto layer = [&](const std::string& name, int64_t rows, int64_t columns) {
    plain(name + ".weight", {rows, columns});
    plain(name + ".bias", {rows});
  };
  const auto norm = [&](const std::string& name) {
    list->add(Role::kNormOne, prefix + name + ".weight", {v.hidden}, Storage::kBf16);
    plain(name + ".bias", {v.hidden});
  };
  // Two frames of 3 colours in square patches.
  int64_t side = 1;
  while (2 * 3 * side * side < v.patch_elements) ++side;
  plain("patch_embed.proj.weight", {v.hidden, 3, 2, side, side});
  plain("patch_embed.proj.bias", {v.hidden});
  plain("pos_embed.weight", {v.positions, v.hidden});
  for (int i = 0; i < v.layers; ++i) {
    const std::string block = fmt::format("blocks.{}.", i);
    norm(block + "norm1");
    layer(block + "attn.qkv", 3 * v.hidden, v.hidden);
    layer(block + "attn.proj", v.hidden, v.hidden);
    norm(block + "norm2");
    layer(block + "mlp.linear_fc1", v.intermediate, v.hidden);
    layer(block + "mlp.linear_fc2", v.hidden, v.intermediate);
  }
  const int64_t merged = v.merged_patches * v.hidden;
  norm("merger.norm");
  layer("merger.linear_fc1", merged, merged);
  layer("merger.linear_fc2", text_hidden, merged);
}

}  // namespace

int64_t SynthTensor::count() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::vector<SynthTensor> synth_tensors(const ModelShape& shape, const VisionShape& vision,
                                       const SynthOptions& options) {
  TensorList list(options.format);
  const Storage storage = storage_of(options.format);
  const ShardPlan plan(shape, {});
  for (int layer = -1; layer < shape.layers; ++layer) {
    for (const Rule& rule : plan.rules())
      if (plan.applies(rule, layer)) list.add(role_of(rule, shape), plan.tensor_name(rule, layer), rule.shape, storage);
  }
  if (shape.mtp_layers > 0) {
    const bool kept = options.bf16_mtp || storage == Storage::kF32;
    add_mtp(shape, kept ? Storage::kBf16 : storage == Storage::kMxfp4 ? Storage::kFp8Channel : storage, &list);
  }
  if (vision.layers > 0) add_vision(vision, shape.hidden, &list);
  return list.take();
}

std::vector<SynthTensor> synth_tensors(const DrafterShape& d, SynthFormat format) {
  if (format == SynthFormat::kQuarkMxfp4 || format == SynthFormat::kFp8Channel) {
    fail(ErrorKind::kUsage, "a drafter is written in bf16, f32 or fp8-block: choose another --format");
  }
  TensorList list(format);
  const Storage storage = storage_of(format);
  const auto norm = [&](const std::string& name, int64_t size) { list.add(Role::kNormOne, name, {size}, storage); };
  const auto matrix = [&](const std::string& name, int64_t rows, int64_t columns) {
    list.add(Role::kMatrix, name, {rows, columns}, storage);
  };
  const auto plain = [&](const std::string& name, std::vector<int64_t> shape) {
    list.add(Role::kPlain, name, std::move(shape), storage);
  };
  matrix("fc.weight", d.hidden, d.target_layers * d.hidden);
  norm("hidden_norm.weight", d.hidden);
  norm("norm.weight", d.hidden);
  for (int i = 0; i < d.layers; ++i) {
    const std::string layer = fmt::format("layers.{}.", i);
    norm(layer + "input_layernorm.weight", d.hidden);
    matrix(layer + "self_attn.q_proj.weight", d.q_heads * d.head_dim, d.hidden);
    matrix(layer + "self_attn.k_proj.weight", d.kv_heads * d.head_dim, d.hidden);
    matrix(layer + "self_attn.v_proj.weight", d.kv_heads * d.head_dim, d.hidden);
    norm(layer + "self_attn.q_norm.weight", d.head_dim);
    norm(layer + "self_attn.k_norm.weight", d.head_dim);
    matrix(layer + "self_attn.o_proj.weight", d.hidden, d.q_heads * d.head_dim);
    norm(layer + "post_attention_layernorm.weight", d.hidden);
    matrix(layer + "mlp.gate_proj.weight", d.intermediate, d.hidden);
    matrix(layer + "mlp.up_proj.weight", d.intermediate, d.hidden);
    matrix(layer + "mlp.down_proj.weight", d.hidden, d.intermediate);
    for (const char* conv : {"attention_conv.", "mlp_conv."}) {
      list.add(Role::kConvolution, layer + conv + "base_kernel", {2, d.conv_taps, d.hidden}, storage);
      plain(layer + conv + "kernel_projection.weight", {2 * d.conv_taps * (d.hidden / d.conv_group), d.hidden});
    }
  }
  plain("candidate_selector.predecessor_codebook", {d.vocab, d.selector_rank});
  plain("candidate_selector.successor_codebook", {d.vocab, d.selector_rank});
  plain("candidate_selector.hidden_projection.weight", {d.selector_rank, d.hidden});
  return list.take();
}

}  // namespace coprime
