// The order of candidates, and a selection that keeps the best ones in a heap: both host devices use it.
#pragma once

#include <limits>

#include "device/device.h"

namespace coprime {

// A NaN counts as the smallest value, so that the order stays total.
inline float rank_value(float logit) { return logit == logit ? logit : -std::numeric_limits<float>::infinity(); }

inline bool ranks_before(const Candidate& a, const Candidate& b) {
  const float x = rank_value(a.logit), y = rank_value(b.logit);
  return x > y || (x == y && a.id < b.id);
}

// The first index from `first` on whose logit is above `threshold`; logits.size() if there is none.
using FindAboveFn = int64_t (*)(std::span<const float> logits, int64_t first, float threshold);

int select_top_k(std::span<const float> logits, int32_t first_id, std::span<Candidate> best, FindAboveFn find_above);

}  // namespace coprime
