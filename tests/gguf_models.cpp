#include "gguf_models.h"

#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <random>

#include "base/check.h"
#include "base/number_formats.h"
#include "checkpoint/checkpoint.h"
#include "gguf/test_files.h"
#include "tensor/block_formats.h"

namespace coprime {
namespace {

const std::map<std::string, std::string>& names_in_gguf() {
  static const std::map<std::string, std::string> kNames = {
      {"embed_tokens.weight", "token_embd.weight"},
      {"norm.weight", "output_norm.weight"},
      {"lm_head.weight", "output.weight"},
      {"input_layernorm.weight", "attn_norm.weight"},
      {"post_attention_layernorm.weight", "ffn_norm.weight"},
      {"self_attn.q_proj.weight", "attn_q.weight"},
      {"self_attn.k_proj.weight", "attn_k.weight"},
      {"self_attn.v_proj.weight", "attn_v.weight"},
      {"self_attn.q_proj.bias", "attn_q.bias"},
      {"self_attn.k_proj.bias", "attn_k.bias"},
      {"self_attn.v_proj.bias", "attn_v.bias"},
      {"self_attn.o_proj.weight", "attn_output.weight"},
      {"self_attn.q_norm.weight", "attn_q_norm.weight"},
      {"self_attn.k_norm.weight", "attn_k_norm.weight"},
      {"mlp.gate_proj.weight", "ffn_gate.weight"},
      {"mlp.up_proj.weight", "ffn_up.weight"},
      {"mlp.down_proj.weight", "ffn_down.weight"},
      {"linear_attn.in_proj_qkv.weight", "attn_qkv.weight"},
      {"linear_attn.in_proj_z.weight", "attn_gate.weight"},
      {"linear_attn.in_proj_b.weight", "ssm_beta.weight"},
      {"linear_attn.in_proj_a.weight", "ssm_alpha.weight"},
      {"linear_attn.conv1d.weight", "ssm_conv1d.weight"},
      {"linear_attn.A_log", "ssm_a"},
      {"linear_attn.dt_bias", "ssm_dt.bias"},
      {"linear_attn.norm.weight", "ssm_norm.weight"},
      {"linear_attn.out_proj.weight", "ssm_out.weight"},
  };
  return kNames;
}

struct Matrix {
  int64_t rows = 0, columns = 0;
  bool is_vector = false;
  std::vector<float> values;
};

Matrix read_matrix(const Checkpoint::Located& at) {
  Matrix matrix;
  matrix.rows = at.tensor->shape[0];
  matrix.columns = 1;
  for (size_t i = 1; i < at.tensor->shape.size(); ++i) matrix.columns *= at.tensor->shape[i];
  matrix.is_vector = at.tensor->shape.size() == 1;
  std::vector<std::byte> bytes(at.tensor->bytes);
  at.file->read(at.tensor->offset, bytes);
  matrix.values.resize(static_cast<size_t>(matrix.rows * matrix.columns));
  dequantize(at.tensor->type, bytes.data(), matrix.rows * matrix.columns, matrix.values.data());
  return matrix;
}

// Row `i` of the result is row from(i).
template <class From>
void move_rows(Matrix* matrix, const From& from) {
  const std::vector<float> old = matrix->values;
  for (int64_t r = 0; r < matrix->rows; ++r)
    std::copy_n(old.begin() + from(r) * matrix->columns, matrix->columns, matrix->values.begin() + r * matrix->columns);
}
template <class From>
void move_columns(Matrix* matrix, const From& from) {
  const std::vector<float> old = matrix->values;
  for (int64_t r = 0; r < matrix->rows; ++r) {
    for (int64_t c = 0; c < matrix->columns; ++c) {
      matrix->values[static_cast<size_t>(r * matrix->columns + c)] =
          old[static_cast<size_t>(r * matrix->columns + from(c))];
    }
  }
}

void convert(const ModelShape& shape, const std::string& suffix, Matrix* matrix) {
  const auto ends = [&](std::string_view end) { return suffix.ends_with(end); };
  if (shape.architecture == Architecture::kLlama && (ends("q_proj.weight") || ends("k_proj.weight"))) {
    const int64_t d = shape.head_dim;  // gguf row [h d + 2 j + i] is row [h d + i d/2 + j]
    move_rows(matrix, [d](int64_t row) { return row / d * d + row % 2 * (d / 2) + row % d / 2; });
  }
  if (shape.architecture != Architecture::kQwen35) return;
  if (ends("norm.weight") && !ends("linear_attn.norm.weight")) {
    for (float& value : matrix->values) value += 1.0f;
  }
  const LinearAttentionShape& linear = shape.linear;
  if (ends("A_log")) {
    for (float& value : matrix->values) value = -std::exp(value);
  }
  // Head i * keys + k of the file is the model's k * ratio + i.
  const int64_t ratio = linear.value_heads / linear.key_heads;
  const auto tiled = [&](int64_t begin, int64_t size) {
    return [=](int64_t at) {
      if (at < begin) return at;
      const int64_t head = (at - begin) / size;
      return begin + (head % linear.key_heads * ratio + head / linear.key_heads) * size + (at - begin) % size;
    };
  };
  const int64_t keys = 2 * int64_t{linear.key_heads} * linear.key_dim;
  if (ends("in_proj_qkv.weight") || ends("conv1d.weight")) move_rows(matrix, tiled(keys, linear.value_dim));
  if (ends("in_proj_z.weight")) move_rows(matrix, tiled(0, linear.value_dim));
  if (ends("in_proj_a.weight") || ends("in_proj_b.weight") || ends("A_log") || ends("dt_bias"))
    move_rows(matrix, tiled(0, 1));
  if (ends("out_proj.weight")) move_columns(matrix, tiled(0, linear.value_dim));
}

uint32_t type_number(DType type) {
  constexpr std::pair<DType, uint32_t> kNumbers[] = {
      {DType::kF32, 0},   {DType::kF16, 1},   {DType::kBF16, 30}, {DType::kQ4_0, 2},  {DType::kQ4_1, 3},
      {DType::kQ5_0, 6},  {DType::kQ5_1, 7},  {DType::kQ8_0, 8},  {DType::kQ2_K, 10}, {DType::kQ3_K, 11},
      {DType::kQ4_K, 12}, {DType::kQ5_K, 13}, {DType::kQ6_K, 14}, {DType::kMxfp4, 39}};
  for (const auto& [known, number] : kNumbers) {
    if (known == type) return number;
  }
  COPRIME_CHECK(false, "{}", dtype_name(type));
  return 0;
}

// Where the half-precision scales of a block stand, and a scale that keeps its numbers around 0.1.
struct Scales {
  std::vector<size_t> places;
  float size;
};
Scales scales_of(DType type) {
  switch (type) {
    case DType::kQ4_1:
    case DType::kQ5_1:
      return {{0, 2}, 0.01f};
    case DType::kQ8_0:
      return {{0}, 0.001f};
    case DType::kQ2_K:
      return {{80, 82}, 0.003f};
    case DType::kQ3_K:
      return {{108}, 0.001f};
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {{0, 2}, 0.0002f};
    case DType::kQ6_K:
      return {{208}, 0.00005f};
    case DType::kMxfp4:
      return {{}, 0};
    default:
      return {{0}, 0.01f};
  }
}

std::string random_blocks(DType type, int64_t blocks, std::mt19937* random) {
  const auto size = static_cast<size_t>(block_shape(type).bytes);
  const Scales scales = scales_of(type);
  std::string bytes(static_cast<size_t>(blocks) * size, '\0');
  for (char& byte : bytes) byte = static_cast<char>((*random)());
  for (size_t at = 0; at < bytes.size(); at += size) {
    if (type == DType::kMxfp4) bytes[at] = static_cast<char>(121 + (*random)() % 3);
    for (size_t place : scales.places) {
      const float sign = (*random)() % 2 != 0 ? 1.0f : -1.0f;
      const uint16_t half = f32_to_f16(sign * scales.size * (0.5f + static_cast<float>((*random)() % 100) / 100));
      std::memcpy(bytes.data() + at + place, &half, 2);
    }
  }
  return bytes;
}

std::string_view bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

GgufBuilder metadata(const ModelShape& s) {
  const char* const names[] = {"llama", "qwen2", "qwen3", "qwen35"};
  const std::string arch = names[static_cast<size_t>(s.architecture)];
  const auto u32 = [](int64_t value) { return static_cast<uint32_t>(value); };
  GgufBuilder file;
  file.text("general.architecture", arch).u32(arch + ".block_count", u32(s.layers));
  file.u32(arch + ".embedding_length", u32(s.hidden)).u32(arch + ".feed_forward_length", u32(s.intermediate));
  file.u32(arch + ".context_length", u32(s.max_positions)).u32(arch + ".vocab_size", u32(s.vocab));
  file.u32(arch + ".attention.head_count", u32(s.q_heads)).u32(arch + ".attention.head_count_kv", u32(s.kv_heads));
  file.u32(arch + ".attention.key_length", u32(s.head_dim)).u32(arch + ".attention.value_length", u32(s.head_dim));
  file.f32(arch + ".attention.layer_norm_rms_epsilon", s.rms_eps);
  file.f32(arch + ".rope.freq_base", static_cast<float>(s.rope.theta));
  file.u32(arch + ".rope.dimension_count", u32(s.rope.rotary_dim));
  if (s.architecture == Architecture::kQwen35) {
    file.u32(arch + ".ssm.conv_kernel", u32(s.linear.conv_taps)).u32(arch + ".ssm.state_size", u32(s.linear.key_dim));
    file.u32(arch + ".ssm.group_count", u32(s.linear.key_heads));
    file.u32(arch + ".ssm.time_step_rank", u32(s.linear.value_heads));
    file.u32(arch + ".ssm.inner_size", u32(int64_t{s.linear.value_heads} * s.linear.value_dim));
    file.u32(arch + ".full_attention_interval", 4);
  }
  return file;
}

// Llama-3.1's rule as divisors.
std::vector<float> rope_divisors(const Rope& rope) {
  std::vector<float> divisors;
  for (int i = 0; i < rope.rotary_dim / 2; ++i) {
    const double frequency = std::pow(rope.theta, -2.0 * i / rope.rotary_dim), wavelength = 2 * M_PI / frequency;
    double divisor = 1;
    if (wavelength > rope.original_max_positions / rope.low_freq_factor) {
      divisor = rope.factor;
    } else if (wavelength >= rope.original_max_positions / rope.high_freq_factor) {
      const double smooth = (rope.original_max_positions / wavelength - rope.low_freq_factor) /
                            (rope.high_freq_factor - rope.low_freq_factor);
      divisor = 1 / ((1 - smooth) / rope.factor + smooth);
    }
    divisors.push_back(static_cast<float>(divisor));
  }
  return divisors;
}

void write(const std::filesystem::path& model, const std::filesystem::path& to, std::optional<DType> random_type,
           bool dequantised) {
  const ModelShape shape = read_model_shape(model);
  const ShardPlan plan(shape, {});
  const Checkpoint checkpoint = Checkpoint::open(model);
  std::map<std::string, Checkpoint::Located> tensors;
  for (const Checkpoint::Located& at : checkpoint.tensors()) tensors[at.tensor->name] = at;
  GgufBuilder file = metadata(shape);
  if (shape.rope.llama3) {
    const std::vector<float> divisors = rope_divisors(shape.rope);
    file.tensor("rope_freqs.weight", {divisors.size()}, 0, bytes_of(divisors));
  }
  std::mt19937 random(11);
  for (const Rule& rule : plan.rules()) {
    for (int layer = -1; layer < shape.layers; ++layer) {
      if (!plan.applies(rule, layer)) continue;
      Matrix matrix = read_matrix(tensors.at(plan.tensor_name(rule, layer)));
      std::string suffix = rule.suffix;
      if (suffix.starts_with(shape.tensor_prefix)) suffix = suffix.substr(shape.tensor_prefix.size());
      std::string name = names_in_gguf().at(suffix);
      if (name == "ffn_norm.weight" && shape.architecture == Architecture::kQwen35) name = "post_attention_norm.weight";
      if (layer >= 0) name = fmt::format("blk.{}.{}", layer, name);
      convert(shape, suffix, &matrix);
      DType type = DType::kF32;
      for (DType wanted : {random_type.value_or(DType::kF32), DType::kQ8_0}) {
        const bool whole = matrix.columns % block_shape(wanted).elements == 0;
        if (random_type && !matrix.is_vector && whole && type == DType::kF32) type = wanted;
      }
      std::vector<uint64_t> dims = {static_cast<uint64_t>(matrix.columns), static_cast<uint64_t>(matrix.rows)};
      if (matrix.is_vector) dims.erase(dims.begin());
      std::string blocks;
      if (type != DType::kF32) {
        const int64_t count = matrix.rows * matrix.columns / block_shape(type).elements;
        blocks = random_blocks(type, count, &random);
        dequantize(type, reinterpret_cast<const std::byte*>(blocks.data()), count, matrix.values.data());
      }
      if (type == DType::kF32 || dequantised) {
        file.tensor(name, dims, 0, bytes_of(matrix.values));
      } else {
        file.tensor(name, dims, type_number(type), blocks);
      }
    }
  }
  file.write(to);
}

}  // namespace

void write_gguf(const std::filesystem::path& model, const std::filesystem::path& to) {
  write(model, to, std::nullopt, false);
}

void write_random_gguf(const std::filesystem::path& model, const std::filesystem::path& to, DType type,
                       bool dequantised) {
  write(model, to, type, dequantised);
}

}  // namespace coprime
