#include "engine/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"

namespace coprime {
namespace {

// SplitMix64's finaliser (Steele, Lea and Flood 2014) over seed and position: uniform in [0, 1).
double uniform(uint64_t seed, uint64_t position) {
  uint64_t z = seed + (position + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

bool better(const Candidate& a, const Candidate& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; }

}  // namespace

int candidates_needed(const SamplingOptions& options) {
  if (options.temperature == 0) return 1;
  return options.top_k;
}

void check_logits(std::span<const Candidate> candidates, int64_t position) {
  for (const Candidate& candidate : candidates) {
    if (std::isfinite(candidate.logit)) continue;
    fail(ErrorKind::kModel,
         "the logit of token {} at position {} is {}: a weight of the checkpoint is not a number, or its numbers "
         "overflow; "
         "fetch the checkpoint again, or try --math f32",
         candidate.id, position, candidate.logit);
  }
}

int32_t sample(std::span<Candidate> candidates, const SamplingOptions& options, uint64_t position) {
  COPRIME_CHECK(!candidates.empty());
  if (options.temperature == 0) return std::ranges::min_element(candidates, better)->id;

  const double largest = std::ranges::min_element(candidates, better)->logit;
  const auto weight = [&](const Candidate& c) { return std::exp((c.logit - largest) / options.temperature); };
  // What weighs less than 2^-60 of the best lies below a draw's 53 bits: left out, so that a large vocabulary sorts
  // quickly.
  const double least = largest - 42 * options.temperature;
  candidates = candidates.first(static_cast<size_t>(
      std::partition(candidates.begin(), candidates.end(), [&](const Candidate& c) { return c.logit >= least; }) -
      candidates.begin()));
  std::ranges::sort(candidates, better);
  if (options.top_k > 0) candidates = candidates.first(std::min(candidates.size(), static_cast<size_t>(options.top_k)));

  std::vector<double> weights;
  double total = 0;
  for (const Candidate& candidate : candidates) {
    const double w = weight(candidate);
    if (!weights.empty() && w < options.min_p) break;
    weights.push_back(w);
    total += w;
  }
  double kept = 0;
  size_t count = 0;
  do kept += weights[count++];
  while (count < weights.size() && kept < options.top_p * total);

  double remaining = uniform(options.seed, position) * kept;
  for (size_t i = 0; i + 1 < count; ++i) {
    remaining -= weights[i];
    if (remaining < 0) return candidates[i].id;
  }
  return candidates[count - 1].id;
}

}  // namespace coprime
