// Which decode a request gets, chosen once from the largest context that its cache may come to hold, since every other
// choice would have to move the cache (kv_reshard.h). Pure arithmetic on tokens: what a reduction takes is given as the
// keys that a PE sweeps in that time. ADR-0060, sections 2.1, 5.2 and B (short and long contexts); spec R42a, R52,
// R56, X23, X24.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace coprime::attention {

enum class DecodeLayout : uint8_t {
  kOnePe,  // a KV head's keys on one PE: sequence parallelism is off
  kShort,  // whole heads on a CUBE, their keys over its PEs
  kLong,   // a head's keys over the PEs of several CUBEs
};
std::string_view name_of(DecodeLayout layout);  // one PE, short, long

// The threshold between short and long is a number of tokens a rank; people say it as the context at which the ranks
// of the document's group of C = 4 and P = 8 have so many: 256K stands for 8192.
inline constexpr int64_t kThresholdRanks = 32;
inline constexpr int64_t kLongFrom = 256 << 10;

// Ranks that may share a head's keys, and what the reduction over them costs.
struct SpDegree {
  int cubes = 1, pes = 1;
  int64_t reduce_keys = 0;  // that a PE sweeps while they reduce: S_rank* of A3; of one rank none

  int64_t ranks() const { return int64_t{cubes} * pes; }
  bool operator==(const SpDegree&) const = default;
};

struct DecodeCase {
  int64_t largest_context = 0;
  int64_t threshold = kLongFrom;  // as above
  std::vector<SpDegree> degrees;  // of the long kernel, the full one first; then those of fewer CUBEs
  SpDegree in_cube;               // of the short kernel: all PEs of a CUBE
  int64_t one_shot_keys = 0;      // the longest shard whose scores fit into scratch memory as one tile
  int64_t tile = 64;              // else
};

struct DecodeChoice {
  DecodeLayout layout = DecodeLayout::kShort;
  SpDegree degree;
  int64_t rank_keys = 0;  // of the fullest rank
  int64_t tile = 64;
  bool one_shot = false;  // one product, one softmax, one product
};

// short: while the full degree's ranks hold fewer tokens than the threshold. Then the degree for which the fullest
// rank's keys and the reduction together take least; of equal ones the one with fewer ranks: sequence parallelism is
// off while a PE sweeps all keys before others have swept theirs and reduced. One shot where the fullest rank's keys
// fit. Error(kUsage) for a context or threshold below 1, or no degree.
DecodeChoice choose_decode(const DecodeCase& request);

// A request with that layout and degree, whichever choose_decode() takes.
DecodeChoice choice_of(const DecodeCase& request, DecodeLayout layout, const SpDegree& degree);

// The shortest context for which `degree` beats one PE: S > ceil(S / ranks) + reduce_keys. At least 2 ranks.
int64_t sp_from(const SpDegree& degree);

}  // namespace coprime::attention
