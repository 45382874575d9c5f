// The models that people ask about on odd rank counts, with what is known of them from outside: which counts other
// engines refuse, and what the geometry for three ranks is. Counts come from stored configs, model pages and issues.
#pragma once

#include <array>
#include <string_view>

#include "plan/model_numbers.h"

namespace coprime {

struct KnownModel {
  std::string_view name;
  int64_t q_heads, kv_heads, head_dim, width, vocab;
  bool experts;  // the width is that of an expert
  // Rank counts from 2 to 8 that an equal division refuses, with what does not divide (q heads, k KV heads, i width,
  // v vocabulary; none: several); those that a division without copies of KV heads refuses.
  std::string_view refused, strictly_refused;
  // For three ranks: padded heads, query heads a rank without padding, the width in units of 64 and of 128, vocabulary.
  int64_t padded_q, padded_kv, overlapping_q, width_64, width_128, padded_vocab;
};

inline constexpr auto kKnownModels = std::to_array<KnownModel>({
    {"Llama-3.1-8B", 32, 8, 128, 14336, 128256, false, "3qki 5 6qki 7", "3567", 36, 9, 11, 14400, 14592, 128256},
    {"Llama-3.1-70B", 64, 8, 128, 28672, 128256, false, "3qki 5 6 7", "3567", 72, 9, 22, 28800, 28800, 128256},
    {"Llama-3.2-3B", 24, 8, 128, 8192, 128256, false, "3ki 5 6ki 7", "3567", 27, 9, 8, 8256, 8448, 128256},
    {"Qwen2.5-0.5B", 14, 2, 64, 4864, 151936, false, "3 4q 5 6 7kiv 8q", "345678", 21, 3, 5, 4992, 4992, 152064},
    {"Qwen2-1.5B", 12, 2, 128, 8960, 151936, false, "3kiv 5 6iv 7 8q", "345678", 18, 3, 4, 9024, 9216, 152064},
    {"Qwen2-7B", 28, 4, 128, 18944, 152064, false, "3qki 5 6 7kiv 8q", "35678", 42, 6, 10, 19008, 19200, 152064},
    {"Qwen2.5-72B", 64, 8, 128, 29568, 152064, false, "3qk 5 6qk 7", "3567", 72, 9, 22, 29568, 29568, 152064},
    {"Qwen3-8B", 32, 8, 128, 12288, 151936, false, "3qkv 5 6 7", "3567", 36, 9, 11, 12288, 12288, 152064},
    {"Qwen3-14B", 40, 8, 128, 17408, 151936, false, "3 5kiv 6 7", "3567", 45, 9, 14, 17472, 17664, 152064},
    {"Qwen3-32B", 64, 8, 128, 25600, 151936, false, "3 5qkv 6 7", "3567", 72, 9, 22, 25728, 25728, 152064},
    {"Qwen3-30B-A3B", 32, 4, 128, 768, 151936, true, "3qkv 5 6qkv 7", "35678", 48, 6, 11, 768, 768, 152064},
    {"Qwen3-235B-A22B", 64, 4, 128, 1536, 151936, true, "3qkv 5 6 7", "35678", 96, 6, 22, 1536, 1536, 152064},
    {"Qwen3.8-27B", 24, 4, 256, 17408, 248320, false, "3kiv 5qki 6kiv 7", "35678", 36, 6, 8, 17472, 17664, 248448},
    {"Qwen3.6-35B-A3B", 16, 2, 256, 512, 248320, true, "3 5 6qiv 7", "345678", 24, 3, 6, 576, 768, 248448},
    {"GLM-4.7", 96, 8, 128, 1536, 151552, true, "3kv 5 6kv 7", "3567", 108, 9, 32, 1536, 1536, 151680},
    {"GLM-4.5-Air", 96, 8, 128, 1408, 151552, true, "3kiv 5 6 7", "3567", 108, 9, 32, 1536, 1536, 151680},
    {"gpt-oss-20b", 64, 8, 64, 2880, 201088, true, "3qkv 5 6 7", "3567", 72, 9, 22, 2880, 3072, 201216},
    {"Mistral-7B-v0.3", 32, 8, 128, 14336, 32768, false, "3 5 6 7", "3567", 36, 9, 11, 14400, 14592, 32832},
    {"Mistral-Small-24B", 32, 8, 128, 32768, 131072, false, "3 5 6 7", "3567", 36, 9, 11, 32832, 33024, 131136},
    {"Gemma-2-27B", 32, 16, 128, 36864, 256000, false, "3qkv 5 6 7", "3567", 36, 18, 11, 36864, 36864, 256128},
    {"Gemma-3-12B", 16, 8, 256, 15360, 262208, false, "3qkv 5 6 7", "3567", 18, 9, 6, 15360, 15360, 262272},
    {"Phi-4-14B", 40, 10, 128, 17920, 100352, false, "3 4k 5v 6 7 8k", "34678", 48, 12, 14, 18048, 18048, 100416},
    {"SmolLM2-135M", 9, 3, 64, 1536, 49152, false, "2 4 5 6q 7 8", "245678", 9, 3, 3, 1536, 1536, 49152},
    {"SmolLM2-360M", 15, 5, 64, 2560, 49152, false, "2 3 4 5v 6 7 8", "234678", 18, 6, 5, 2688, 2688, 49152},
    {"StarCoder2-7B", 36, 4, 128, 18432, 49152, false, "3k 5 6k 7 8q", "35678", 54, 6, 12, 18432, 18432, 49152},
    {"MiniMax-M2", 48, 8, 128, 1536, 200064, true, "3k 5 6k 7", "3567", 54, 9, 16, 1536, 1536, 200064},
    {"DeepSeek-V3", 128, 128, 128, 2048, 129280, true, "3 5 6 7", "3567", 129, 129, 43, 2112, 2304, 129408},
    {"Kimi-K2", 64, 64, 128, 2048, 163840, true, "3 5 6 7", "3567", 66, 66, 22, 2112, 2304, 163968},
});

// One layer of it, with a hidden size that does not matter here.
inline ModelNumbers numbers_of(const KnownModel& known) {
  ModelNumbers model{.name = std::string(known.name),
                     .hidden = 1024,
                     .vocab = known.vocab,
                     .max_positions = 4096,
                     .layers = 1,
                     .attention_layers = 1,
                     .q_heads = known.q_heads,
                     .kv_heads = known.kv_heads,
                     .head_dim = known.head_dim,
                     .q_rows = known.head_dim};
  if (known.experts) {
    model.expert_layers = 1, model.experts = 8, model.active_experts = 2, model.expert_width = known.width;
  } else {
    model.mlp_layers = 1, model.intermediate = known.width;
  }
  if (known.name == "DeepSeek-V3" || known.name == "Kimi-K2") {
    model.q_rank = 1536, model.kv_rank = 512, model.nope_dim = 128, model.rope_dim = 64, model.value_dim = 128;
    model.q_rows = 192;
  }
  return model;
}

}  // namespace coprime
