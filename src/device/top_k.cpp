#include "device/top_k.h"

#include <algorithm>

namespace coprime {

int select_top_k(std::span<const float> logits, int32_t first_id, std::span<Candidate> best, FindAboveFn find_above) {
  const auto size = static_cast<int64_t>(logits.size());
  const int64_t k = std::min(size, static_cast<int64_t>(best.size()));
  if (k == 0) return 0;
  const auto begin = best.begin(), end = begin + k;
  for (int64_t i = 0; i < k; ++i)
    best[static_cast<size_t>(i)] = {logits[static_cast<size_t>(i)], first_id + static_cast<int32_t>(i)};
  std::make_heap(begin, end, ranks_before);  // the worst of the kept at the front
  // Ids ascend, so an equal logit never displaces a kept one.
  for (int64_t i = k; (i = find_above(logits, i, rank_value(best.front().logit))) < size; ++i) {
    std::pop_heap(begin, end, ranks_before);
    *(end - 1) = {logits[static_cast<size_t>(i)], first_id + static_cast<int32_t>(i)};
    std::push_heap(begin, end, ranks_before);
  }
  std::sort_heap(begin, end, ranks_before);
  return static_cast<int>(k);
}

}  // namespace coprime
