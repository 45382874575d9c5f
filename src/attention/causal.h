// Which keys a block of queries sees: tiles of keys wholly in its past, partly (masked), or wholly in its future
// (skipped: neither read nor computed). spec R54, X35, A3.
#pragma once

#include <algorithm>
#include <cstdint>

namespace coprime::attention {

enum class TileKind : uint8_t { kPast, kPartial, kFuture };

// Queries [query_begin, query_end), keys [key_begin, key_end), absolute positions. A tile that ends right behind the
// first query is wholly visible, yet counts as partial, as ADR-0060 has it (one key on the safe side).
constexpr TileKind tile_kind(int64_t query_begin, int64_t query_end, int64_t key_begin, int64_t key_end) {
  if (key_end <= query_begin) return TileKind::kPast;
  return key_begin >= query_end ? TileKind::kFuture : TileKind::kPartial;
}

struct TileCounts {
  int64_t past = 0, partial = 0, future = 0;
  bool operator==(const TileCounts&) const = default;
};

// Of `tiles` tiles of `tile` keys from position 0 on, in closed form.
constexpr TileCounts tile_counts(int64_t query_begin, int64_t query_end, int64_t tile, int64_t tiles) {
  const int64_t past = std::min(query_begin / tile, tiles);
  const int64_t seen = std::min((query_end + tile - 1) / tile, tiles);
  return {past, seen - past, tiles - seen};
}

// A prompt in `size` chunks over a ring of `size` CUBEs: whether the CUBE at `position` computes at `step` of chunk
// `chunk` (it holds block (position - step) mod size, which must not lie behind the chunk).
constexpr bool ring_step_computes(int position, int step, int chunk, int size) {
  return ((position - step) % size + size) % size <= chunk;
}

}  // namespace coprime::attention
