#include "attention/dispatch.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace coprime::attention {
namespace {

int64_t keys_of(int64_t context, const SpDegree& degree) { return (context - 1) / degree.ranks() + 1; }

}  // namespace

std::string_view name_of(DecodeLayout layout) {
  return layout == DecodeLayout::kOnePe ? "one PE" : layout == DecodeLayout::kShort ? "short" : "long";
}

DecodeChoice choose_decode(const DecodeCase& request) {
  const int64_t context = request.largest_context;
  if (context < 1 || request.threshold < 1)
    fail(ErrorKind::kUsage, "a context of {} tokens, long from {} on; expected at least 1", context, request.threshold);
  if (request.degrees.empty()) fail(ErrorKind::kUsage, "no CUBEs to spread a head's keys over");
  // context / ranks < threshold / kThresholdRanks, in whole numbers.
  const bool is_short = context * kThresholdRanks < request.threshold * request.degrees.front().ranks();
  std::vector<SpDegree> candidates = is_short ? std::vector{request.in_cube} : request.degrees;
  candidates.push_back({});
  const auto cost = [&](const SpDegree& degree) {
    return std::pair(keys_of(context, degree) + degree.reduce_keys, degree.ranks());
  };
  const SpDegree degree = *std::ranges::min_element(candidates, {}, cost);
  return choice_of(request,
                   degree.ranks() == 1 ? DecodeLayout::kOnePe
                   : is_short          ? DecodeLayout::kShort
                                       : DecodeLayout::kLong,
                   degree);
}

DecodeChoice choice_of(const DecodeCase& request, DecodeLayout layout, const SpDegree& degree) {
  const int64_t keys = keys_of(request.largest_context, degree);
  const bool fits = keys <= request.one_shot_keys;
  return {layout, degree, keys, fits ? keys : request.tile, fits};
}

int64_t sp_from(const SpDegree& degree) {
  const int64_t ranks = degree.ranks();
  COPRIME_CHECK(ranks > 1, "{}", ranks);
  // S - ceil(S / R) grows by R - 1 for every R keys, not at those of the form q R + 1: S = q R + r, with r from 1 to R,
  // saves q (R - 1) + r - 1 keys, and must save reduce_keys + 1.
  const int64_t saved = degree.reduce_keys + 1, whole = saved / (ranks - 1), rest = saved % (ranks - 1);
  return rest == 0 ? whole * ranks : whole * ranks + rest + 1;
}

}  // namespace coprime::attention
