// The models that people ask about on odd rank counts, with what is known of them from outside: which counts other
// engines refuse, and what the geometry for three ranks is.
#pragma once

#include <array>
#include <string_view>

#include "plan/model_numbers.h"

namespace coprime {

struct KnownModel {
  std::string_view name;  // of the table of named shapes
  // Rank counts from 2 to 8 that an equal division refuses, with what does not divide (q heads, k KV heads, i width,
  // v vocabulary; none: several); those that a division without copies of KV heads refuses.
  std::string_view refused, strictly_refused;
  // For three ranks: padded heads, query heads a rank without padding, the width in units of 64 and of 128, vocabulary.
  int64_t padded_q, padded_kv, overlapping_q, width_64, width_128, padded_vocab;
};

inline constexpr auto kKnownModels = std::to_array<KnownModel>({
    {"llama-3.1-8b", "3qki 5 6qki 7", "3567", 36, 9, 11, 14400, 14592, 128256},
    {"llama-3.1-70b", "3qki 5 6 7", "3567", 72, 9, 22, 28800, 28800, 128256},
    {"llama-3.2-3b", "3ki 5 6ki 7", "3567", 27, 9, 8, 8256, 8448, 128256},
    {"qwen2.5-0.5b", "3 4q 5 6 7kiv 8q", "345678", 21, 3, 5, 4992, 4992, 152064},
    {"qwen2.5-1.5b", "3kiv 5 6iv 7 8q", "345678", 18, 3, 4, 9024, 9216, 152064},
    {"qwen2.5-7b", "3qki 5 6 7kiv 8q", "35678", 42, 6, 10, 19008, 19200, 152064},
    {"qwen2.5-72b", "3qk 5 6qk 7", "3567", 72, 9, 22, 29568, 29568, 152064},
    {"qwen3-8b", "3qkv 5 6 7", "3567", 36, 9, 11, 12288, 12288, 152064},
    {"qwen3-14b", "3 5kiv 6 7", "3567", 45, 9, 14, 17472, 17664, 152064},
    {"qwen3-32b", "3 5qkv 6 7", "3567", 72, 9, 22, 25728, 25728, 152064},
    {"qwen3-30b-a3b", "3qkv 5 6qkv 7", "35678", 48, 6, 11, 768, 768, 152064},
    {"qwen3-235b-a22b", "3qkv 5 6 7", "35678", 96, 6, 22, 1536, 1536, 152064},
    {"qwen3.8-27b", "3kiv 5qki 6kiv 7", "35678", 36, 6, 8, 17472, 17664, 248448},
    {"qwen3.6-35b-a3b", "3 5 6qiv 7", "345678", 24, 3, 6, 576, 768, 248448},
    {"glm-4.7", "3kv 5 6kv 7", "3567", 108, 9, 32, 1536, 1536, 151680},
    {"glm-4.5-air", "3kiv 5 6 7", "3567", 108, 9, 32, 1536, 1536, 151680},
    {"gpt-oss-20b", "3qkv 5 6 7", "3567", 72, 9, 22, 2880, 3072, 201216},
    {"mistral-7b-v0.3", "3 5 6 7", "3567", 36, 9, 11, 14400, 14592, 32832},
    {"mistral-small-24b", "3 5 6 7", "3567", 36, 9, 11, 32832, 33024, 131136},
    {"gemma-2-27b", "3qkv 5 6 7", "3567", 36, 18, 11, 36864, 36864, 256128},
    {"gemma-3-12b", "3qkv 5 6 7", "3567", 18, 9, 6, 15360, 15360, 262272},
    {"phi-4", "3 4k 5v 6 7 8k", "34678", 48, 12, 14, 18048, 18048, 100416},
    {"smollm2-135m", "2 4 5 6q 7 8", "245678", 9, 3, 3, 1536, 1536, 49152},
    {"smollm2-360m", "2 3 4 5v 6 7 8", "234678", 18, 6, 5, 2688, 2688, 49152},
    {"starcoder2-7b", "3k 5 6k 7 8q", "35678", 54, 6, 12, 18432, 18432, 49152},
    {"minimax-m2", "3k 5 6k 7", "3567", 54, 9, 16, 1536, 1536, 200064},
    {"deepseek-v3", "3 5 6 7", "3567", 129, 129, 43, 2112, 2304, 129408},
    {"kimi-k2", "3 5 6 7", "3567", 66, 66, 22, 2112, 2304, 163968},
});

inline ModelNumbers numbers_of(const KnownModel& known) { return numbers_of(named_shape(known.name)); }

}  // namespace coprime
