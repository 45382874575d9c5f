// Where the keys and values of a head lie: ranks (a PE of a CUBE of the group) own contiguous blocks of `block` tokens,
// rank r those from r * block on. The block follows from the largest context, so that nothing moves as the sequence
// grows. spec R37 to R42, X5, X6, X27; ADR-0060, section 2.
#pragma once

#include <cstdint>

namespace coprime::attention {

struct KvPlacement {
  int cubes = 1, pes = 1;            // C, P
  int64_t block = 1;                 // B, tokens a rank
  int first_cube = 0, first_pe = 0;  // data are rotated so that requests begin on different ranks; the reduction is not

  int ranks() const { return cubes * pes; }
  int64_t capacity() const { return ranks() * block; }
  int rank_of(int cube_place, int pe) const;  // of a physical place
  int cube_of(int rank) const;                // and back
  int pe_of(int rank) const;
  int rank(int64_t token) const { return static_cast<int>(token / block); }
  int64_t slot(int64_t token) const { return token % block; }
  int64_t begin(int rank) const { return rank * block; }  // the first token
  // Tokens that the rank holds of a sequence of `tokens`, and how many tiles of `tile` they fill.
  int64_t held(int rank, int64_t tokens) const;
  int64_t tiles(int rank, int64_t tokens, int64_t tile) const { return (held(rank, tokens) + tile - 1) / tile; }
  int64_t ranks_with_tokens(int64_t tokens) const { return (tokens + block - 1) / block; }
  // The rank that the last token was written to; `tokens` counts it.
  int writer(int64_t tokens) const { return rank(tokens - 1); }
};

// B = ceil(largest_context / (C P)), rounded up to a multiple of `multiple` (a tile, or 1). Requests are rotated:
// the first CUBE is request mod C, the first PE floor(request / C) mod P. Error(kUsage) for counts below 1.
KvPlacement kv_placement(int64_t largest_context, int cubes, int pes, int64_t multiple = 1, int64_t request = 0);

// The KV head of a short context lies whole on one CUBE, `heads_per_cube` on each. spec R56.
constexpr int cube_of_head(int head, int heads_per_cube) { return head / heads_per_cube; }

}  // namespace coprime::attention
