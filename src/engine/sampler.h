// Chooses the next token from the ranks' logits. Pure: a draw depends on the candidates, the settings, and (seed,
// position of the output token) only.
//
// Order, as vLLM has it: temperature, min_p, top_k, top_p, draw. Temperature 0 is greedy: the largest logit, ties to
// the lowest id.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"

namespace coprime {

struct SamplingOptions {
  double temperature = 0;
  int top_k = 0;     // 0: all
  double top_p = 1;  // smallest set of the most probable with this mass
  double min_p = 0;  // at least this share of the largest probability
  uint64_t seed = 0;
};

// How many candidates a rank must give: 0 where the whole shard is needed.
int candidates_needed(const SamplingOptions& options);

// Error(kModel) if one is not finite: a weight is not a number, or activations overflow. `position`: of the text.
void check_logits(std::span<const Candidate> candidates, int64_t position);

// `candidates` in any order, finite, ids distinct, at least one; reordered. Returns the id.
int32_t sample(std::span<Candidate> candidates, const SamplingOptions& options, uint64_t position);

}  // namespace coprime
