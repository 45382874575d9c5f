// Many greedy continuations at once: sequences share steps, and one that ends gives its place to the next. In exact
// mode each has the tokens that it would have alone; otherwise sums of a batch may round differently.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/front.h"

namespace coprime {

struct GreedyRequest {
  std::vector<int32_t> prompt;
  int64_t max_tokens = 1;  // at least 1
};

struct GreedyResult {
  std::vector<int32_t> ids;    // without the end's id
  std::vector<float> margins;  // by how much each led the next best, the end's id's too
  bool ended = false;          // by an end's id
};

// `done` is called for each request when it ends, in any order. Error(kUsage), before anything runs, for a prompt that
// is empty or that leaves no room for its tokens in the front's context. Error(kInternal) if a logit is no number.
void generate_side_by_side(Front& front, std::span<const GreedyRequest> requests, std::span<const int32_t> end_ids,
                           const std::function<void(size_t request, const GreedyResult&)>& done);

}  // namespace coprime
