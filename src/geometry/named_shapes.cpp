#include "geometry/named_shapes.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/error.h"
#include "base/printable.h"

namespace coprime {
namespace {

constexpr auto kLlama = Architecture::kLlama;
constexpr auto kQwen2 = Architecture::kQwen2;
constexpr auto kQwen3 = Architecture::kQwen3;
constexpr auto kQwen35 = Architecture::kQwen35;
constexpr auto kNone = std::optional<Architecture>();
constexpr auto kChecked = Provenance::kChecked;
constexpr auto kRecalled = Provenance::kRecalled;

// Of the 27B models of Qwen3.5's family: 27 blocks, a table of 48 x 48 positions, patches of 3 x 2 x 16 x 16, four of
// them merged into one token.
constexpr VisionShape kQwenVision = {
    .layers = 27, .hidden = 1152, .intermediate = 4304, .positions = 2304, .patch_elements = 1536, .merged_patches = 4};

constexpr NamedShape qwen35_27b(std::string_view name, std::string_view checkpoint) {
  return {.name = name,
          .checkpoint = checkpoint,
          .architecture = kQwen35,
          .provenance = kChecked,
          .hidden = 5120,
          .intermediate = 17408,
          .layers = 64,
          .q_heads = 24,
          .kv_heads = 4,
          .head_dim = 256,
          .vocab = 248320,
          .max_positions = 262144,
          .rope_theta = 1e7,
          .full_attention_interval = 4,
          .mtp_layers = 1,
          .linear = {16, 48, 128, 128, 4},
          .vision = kQwenVision};
}

// clang-format off
constexpr auto kShapes = std::to_array<NamedShape>({
    // hidden, intermediate, layers, q, kv, head size, vocabulary, positions, tied, eps, theta, ...
    {"smollm2-135m", "HuggingFaceTB/SmolLM2-135M", kLlama, kChecked, 576, 1536, 30, 9, 3, 64, 49152, 8192, true, 1e-5, 1e5},
    {"smollm2-360m", "HuggingFaceTB/SmolLM2-360M", kLlama, kChecked, 960, 2560, 32, 15, 5, 64, 49152, 8192, true, 1e-5, 1e5},
    {"smollm2-1.7b", "HuggingFaceTB/SmolLM2-1.7B", kLlama, kRecalled, 2048, 8192, 24, 32, 32, 64, 49152, 8192, true, 1e-5, 1.3e5},
    {"llama-3.1-8b", "meta-llama/Llama-3.1-8B", kLlama, kChecked, 4096, 14336, 32, 32, 8, 128, 128256, 131072, false, 1e-5, 5e5, 8},
    {"llama-3.1-70b", "meta-llama/Llama-3.1-70B", kLlama, kChecked, 8192, 28672, 80, 64, 8, 128, 128256, 131072, false, 1e-5, 5e5, 8},
    {"llama-3.2-1b", "meta-llama/Llama-3.2-1B", kLlama, kChecked, 2048, 8192, 16, 32, 8, 64, 128256, 131072, true, 1e-5, 5e5, 32},
    {"llama-3.2-3b", "meta-llama/Llama-3.2-3B", kLlama, kChecked, 3072, 8192, 28, 24, 8, 128, 128256, 131072, true, 1e-5, 5e5, 32},
    {"qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B", kQwen2, kChecked, 896, 4864, 24, 14, 2, 64, 151936, 32768, true},
    {"qwen2.5-1.5b", "Qwen/Qwen2.5-1.5B", kQwen2, kChecked, 1536, 8960, 28, 12, 2, 128, 151936, 131072, true},
    {"qwen2.5-3b", "Qwen/Qwen2.5-3B", kQwen2, kChecked, 2048, 11008, 36, 16, 2, 128, 151936, 32768, true},
    {"qwen2.5-7b", "Qwen/Qwen2.5-7B", kQwen2, kChecked, 3584, 18944, 28, 28, 4, 128, 152064, 131072, false},
    {"qwen2.5-14b", "Qwen/Qwen2.5-14B", kQwen2, kChecked, 5120, 13824, 48, 40, 8, 128, 152064, 131072, false, 1e-5},
    {"qwen2.5-32b", "Qwen/Qwen2.5-32B", kQwen2, kChecked, 5120, 27648, 64, 40, 8, 128, 152064, 131072, false, 1e-5},
    {"qwen2.5-72b", "Qwen/Qwen2.5-72B", kQwen2, kRecalled, 8192, 29568, 80, 64, 8, 128, 152064, 131072, false, 1e-5},
    {"qwen3-0.6b", "Qwen/Qwen3-0.6B", kQwen3, kChecked, 1024, 3072, 28, 16, 8, 128, 151936, 40960, true},
    {"qwen3-1.7b", "Qwen/Qwen3-1.7B", kQwen3, kChecked, 2048, 6144, 28, 16, 8, 128, 151936, 40960, true},
    {"qwen3-4b", "Qwen/Qwen3-4B", kQwen3, kChecked, 2560, 9728, 36, 32, 8, 128, 151936, 40960, true},
    {"qwen3-8b", "Qwen/Qwen3-8B", kQwen3, kChecked, 4096, 12288, 36, 32, 8, 128, 151936, 40960, false},
    {"qwen3-14b", "Qwen/Qwen3-14B", kQwen3, kChecked, 5120, 17408, 40, 40, 8, 128, 151936, 40960, false},
    {"qwen3-32b", "Qwen/Qwen3-32B", kQwen3, kChecked, 5120, 25600, 64, 64, 8, 128, 151936, 40960, false},
    // Their vision towers are left out.
    {"qwen3.5-0.8b", "Qwen/Qwen3.5-0.8B", kQwen35, kChecked, 1024, 3584, 24, 8, 2, 256, 248320, 262144, true, 1e-6, 1e7, 0, 4, 1, {16, 16, 128, 128, 4}},
    {"qwen3.5-4b", "Qwen/Qwen3.5-4B", kQwen35, kRecalled, 2560, 9216, 32, 16, 4, 256, 248320, 262144, true, 1e-6, 1e7, 0, 4, 1, {16, 32, 128, 128, 4}},
    {"qwen3.5-9b", "Qwen/Qwen3.5-9B", kQwen35, kChecked, 4096, 12288, 32, 16, 4, 256, 248320, 262144, false, 1e-6, 1e7, 0, 4, 1, {16, 32, 128, 128, 4}},
    qwen35_27b("qwen3.5-27b", "Qwen/Qwen3.5-27B"),
    qwen35_27b("qwen3.6-27b", "Qwen/Qwen3.6-27B"),
    qwen35_27b("qwen3.8-27b", "Qwen/Qwen3.8-27B"),

    {"qwen3.8-27b-dflash2", "incoai/Qwen3.8-27B-DFlash2", kNone, kChecked, 5120, 17408, 5, 32, 8, 128, 248320, 262144, false, 1e-6, 1e7, 0, 1, 0, {}, {}, {}, {}, {8, 2, 16, 256, 16, 2048, 248070, {5, 19, 33, 47, 61}}},

    {"qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B", kNone, kChecked, 2048, 0, 48, 32, 4, 128, 151936, 40960, false, 1e-6, 1e6, 0, 1, 0, {}, {128, 8, 768, 0, 0}},
    {"qwen3-235b-a22b", "Qwen/Qwen3-235B-A22B", kNone, kChecked, 4096, 0, 94, 64, 4, 128, 151936, 40960, false, 1e-6, 1e6, 0, 1, 0, {}, {128, 8, 1536, 0, 0}},
    {"qwen3-next-80b-a3b", "Qwen/Qwen3-Next-80B-A3B-Instruct", kNone, kRecalled, 2048, 0, 48, 16, 2, 256, 151936, 262144, false, 1e-6, 1e7, 0, 4, 1, {16, 32, 128, 128, 4}, {512, 10, 512, 512, 0}},
    {"qwen3.6-35b-a3b", "Qwen/Qwen3.6-35B-A3B", kNone, kRecalled, 2048, 0, 40, 16, 2, 256, 248320, 262144, false, 1e-6, 1e7, 0, 4, 1, {16, 32, 128, 128, 4}, {256, 8, 512, 512, 0}},
    {"glm-4.7", "zai-org/GLM-4.7", kNone, kChecked, 5120, 12288, 92, 96, 8, 128, 151552, 202752, false, 1e-5, 1e6, 0, 1, 1, {}, {160, 8, 1536, 1536, 3}},
    {"glm-4.5-air", "zai-org/GLM-4.5-Air", kNone, kChecked, 4096, 10944, 46, 96, 8, 128, 151552, 131072, false, 1e-5, 1e6, 0, 1, 1, {}, {128, 8, 1408, 1408, 1}},
    {"gpt-oss-20b", "openai/gpt-oss-20b", kNone, kChecked, 2880, 0, 24, 64, 8, 64, 201088, 131072, false, 1e-5, 1.5e5, 0, 1, 0, {}, {32, 4, 2880, 0, 0}},
    {"gpt-oss-120b", "openai/gpt-oss-120b", kNone, kChecked, 2880, 0, 36, 64, 8, 64, 201088, 131072, false, 1e-5, 1.5e5, 0, 1, 0, {}, {128, 4, 2880, 0, 0}},
    {"mistral-7b-v0.3", "mistralai/Mistral-7B-v0.3", kNone, kChecked, 4096, 14336, 32, 32, 8, 128, 32768, 32768, false, 1e-5, 1e6},
    {"mistral-small-24b", "mistralai/Mistral-Small-24B-Base-2501", kNone, kChecked, 5120, 32768, 40, 32, 8, 128, 131072, 32768, false, 1e-5, 1e8},
    {"gemma-2-27b", "google/gemma-2-27b", kNone, kChecked, 4608, 36864, 46, 32, 16, 128, 256000, 8192, true, 1e-6, 1e4},
    {"gemma-3-12b", "google/gemma-3-12b-pt", kNone, kChecked, 3840, 15360, 48, 16, 8, 256, 262208, 131072, true, 1e-6, 1e6},
    {"phi-4", "microsoft/phi-4", kNone, kChecked, 5120, 17920, 40, 40, 10, 128, 100352, 16384, false, 1e-5, 2.5e5},
    {"starcoder2-7b", "bigcode/starcoder2-7b", kNone, kChecked, 4608, 18432, 32, 36, 4, 128, 49152, 16384, true, 1e-5, 1e6},
    {"minimax-m2", "MiniMaxAI/MiniMax-M2", kNone, kChecked, 3072, 0, 62, 48, 8, 128, 200064, 196608, false, 1e-6, 5e6, 0, 1, 0, {}, {256, 8, 1536, 0, 0}},
    {"deepseek-v3", "deepseek-ai/DeepSeek-V3", kNone, kChecked, 7168, 18432, 61, 128, 128, 192, 129280, 163840, false, 1e-6, 1e4, 0, 1, 1, {}, {256, 8, 2048, 2048, 3}, {1536, 512, 64}},
    {"kimi-k2", "moonshotai/Kimi-K2-Instruct", kNone, kChecked, 7168, 18432, 61, 64, 64, 192, 163840, 131072, false, 1e-6, 5e4, 0, 1, 0, {}, {384, 8, 2048, 2048, 1}, {1536, 512, 64}},
});
// clang-format on

std::string_view architecture_name(Architecture architecture) {
  switch (architecture) {
    case Architecture::kLlama:
      return "LlamaForCausalLM";
    case Architecture::kQwen2:
      return "Qwen2ForCausalLM";
    case Architecture::kQwen3:
      return "Qwen3ForCausalLM";
    case Architecture::kQwen35:
      break;
  }
  return "Qwen3_5ForConditionalGeneration";
}

std::string_view model_type(Architecture architecture) {
  switch (architecture) {
    case Architecture::kLlama:
      return "llama";
    case Architecture::kQwen2:
      return "qwen2";
    case Architecture::kQwen3:
      return "qwen3";
    case Architecture::kQwen35:
      break;
  }
  return "qwen3_5_text";
}

// The keys of the text model, a line each, ending in a comma but for the last.
std::string text_keys(const NamedShape& s, std::string_view indent) {
  std::string text;
  const auto line = [&](std::string_view key, const std::string& value) {
    text += fmt::format("{}{}\"{}\": {}", text.empty() ? "" : ",\n", indent, key, value);
  };
  line("model_type", fmt::format("\"{}\"", model_type(*s.architecture)));
  line("dtype", "\"bfloat16\"");
  line("hidden_size", fmt::format("{}", s.hidden));
  line("intermediate_size", fmt::format("{}", s.intermediate));
  line("num_hidden_layers", fmt::format("{}", s.layers));
  line("num_attention_heads", fmt::format("{}", s.q_heads));
  line("num_key_value_heads", fmt::format("{}", s.kv_heads));
  line("head_dim", fmt::format("{}", s.head_dim));
  line("vocab_size", fmt::format("{}", s.vocab));
  line("max_position_embeddings", fmt::format("{}", s.max_positions));
  line("hidden_act", "\"silu\"");
  line("rms_norm_eps", fmt::format("{}", s.rms_eps));
  line("tie_word_embeddings", s.tied_head ? "true" : "false");
  if (*s.architecture == Architecture::kQwen35) {
    line("attention_bias", "false");
    line("attn_output_gate", "true");
    line("full_attention_interval", fmt::format("{}", s.full_attention_interval));
    line("linear_num_key_heads", fmt::format("{}", s.linear.key_heads));
    line("linear_num_value_heads", fmt::format("{}", s.linear.value_heads));
    line("linear_key_head_dim", fmt::format("{}", s.linear.key_dim));
    line("linear_value_head_dim", fmt::format("{}", s.linear.value_dim));
    line("linear_conv_kernel_dim", fmt::format("{}", s.linear.conv_taps));
    line("mamba_ssm_dtype", "\"float32\"");
    line("mtp_num_hidden_layers", fmt::format("{}", s.mtp_layers));
    line("rope_parameters",
         fmt::format("{{\"rope_type\": \"default\", \"rope_theta\": {}, \"partial_rotary_factor\": 0.25, "
                     "\"mrope_interleaved\": true, \"mrope_section\": [11, 11, 10]}}",
                     s.rope_theta));
    return text;
  }
  line("rope_theta", fmt::format("{}", s.rope_theta));
  if (s.llama3_factor > 0) {
    line("rope_scaling", fmt::format("{{\"rope_type\": \"llama3\", \"factor\": {}, \"low_freq_factor\": 1.0, "
                                     "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192}}",
                                     s.llama3_factor));
  }
  return text;
}

// The keys of the text model that both have, and those of the draft.
std::string drafter_config(const NamedShape& s) {
  std::string layer_types;
  for (int i = 0; i < s.layers; ++i) layer_types += i == 0 ? "\"sliding_attention\"" : ", \"sliding_attention\"";
  std::string text = "{\n  \"architectures\": [\"DFlash2DraftModel\"],\n";
  NamedShape decoder = s;
  decoder.architecture = Architecture::kQwen3;
  text += text_keys(decoder, "  ");
  text += fmt::format(",\n  \"layer_types\": [{}],\n  \"sliding_window\": {},\n  \"is_causal\": false,\n", layer_types,
                      s.draft.window);
  return text + fmt::format(
                    "  \"dflash_config\": {{\"block_size\": {}, \"mask_token_id\": {}, \"target_layer_ids\": [{}], "
                    "\"conv_kernel_size\": {}, \"conv_group_size\": {}, \"selector_rank\": {}, "
                    "\"selector_top_k\": {}}}\n}}\n",
                    s.draft.block, s.draft.mask_token, fmt::join(s.draft.target_layers, ", "), s.draft.conv_taps,
                    s.draft.conv_group, s.draft.selector_rank, s.draft.selector_top_k);
}

}  // namespace

std::span<const NamedShape> named_shapes() { return kShapes; }

const NamedShape* find_named_shape(std::string_view name) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  for (const NamedShape& shape : kShapes) {
    if (std::ranges::equal(name, shape.name, same)) return &shape;
  }
  return nullptr;
}

const NamedShape& named_shape(std::string_view name) {
  if (const NamedShape* found = find_named_shape(name)) return *found;
  std::string known;
  for (const NamedShape& shape : kShapes) known += (known.empty() ? "" : ", ") + std::string(shape.name);
  fail(ErrorKind::kUsage, "no shape is named \"{}\"; expected one of {}, or a folder with a config.json",
       printable(name), known);
}

std::string config_json(const NamedShape& shape) {
  if (shape.draft.block > 0) return drafter_config(shape);
  if (!shape.architecture) {
    fail(ErrorKind::kUsage, "{} is a shape to plan with: coprime does not run it, and has no config for it; see {}",
         shape.name, "coprime plan");
  }
  const auto head = fmt::format("{{\n  \"architectures\": [\"{}\"],\n", architecture_name(*shape.architecture));
  if (*shape.architecture != Architecture::kQwen35) return head + text_keys(shape, "  ") + "\n}\n";
  std::string text = head + fmt::format("  \"model_type\": \"qwen3_5\",\n  \"tie_word_embeddings\": {},\n",
                                        shape.tied_head ? "true" : "false");
  text += "  \"text_config\": {\n" + text_keys(shape, "    ") + "\n  }";
  if (const VisionShape& vision = shape.vision; vision.layers > 0) {
    text += fmt::format(
        ",\n  \"vision_config\": {{\"model_type\": \"qwen3_5\", \"depth\": {}, \"hidden_size\": {}, "
        "\"intermediate_size\": {}, \"num_heads\": 16, \"num_position_embeddings\": {}, \"in_channels\": 3, "
        "\"temporal_patch_size\": 2, \"patch_size\": 16, \"spatial_merge_size\": 2, \"out_hidden_size\": {}, "
        "\"deepstack_visual_indexes\": []}}",
        vision.layers, vision.hidden, vision.intermediate, vision.positions, shape.hidden);
  }
  return text + "\n}\n";
}

}  // namespace coprime
