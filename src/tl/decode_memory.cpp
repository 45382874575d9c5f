#include "tl/decode_memory.h"

#include <algorithm>

namespace coprime::tl {
namespace {

// As the arena lays them out.
int64_t bytes(int64_t elements, Type type) { return (elements * bytes_of(type) + 3) / 4 * 4; }

}  // namespace

int64_t one_shot_bytes(DecodeVariant variant, int64_t rows, int64_t d, int64_t keys) {
  const bool fused = variant == DecodeVariant::kOpt2;
  const int64_t column = bytes(rows, Type::kF32), output = bytes(rows * d, Type::kF32), state = 2 * column + output;
  const int64_t scores = bytes(rows * keys, Type::kF32);
  // What arrives, the merged state; Q; the state, and but for opt2 the next one.
  int64_t lasting = 2 * state + bytes(rows * d, Type::kBf16) + state + (fused ? 0 : state);
  int64_t of_tile = fused ? 0 : scores + bytes(rows * keys, Type::kBf16) + 5 * column + 2 * output;
  (variant == DecodeVariant::kOpt1 ? of_tile : lasting) += scores;
  if (variant == DecodeVariant::kOpt3v) lasting += bytes(keys * d, Type::kBf16);
  const int64_t of_merge = 6 * column + 2 * output;
  return lasting + std::max(of_tile, of_merge);
}

int64_t one_shot_keys(DecodeVariant variant, int64_t rows, int64_t d, int64_t arena_bytes) {
  int64_t fits = 0;
  for (int64_t step = int64_t{1} << 40; step > 0; step /= 2)
    if (one_shot_bytes(variant, rows, d, fits + step) <= arena_bytes) fits += step;
  return fits;
}

}  // namespace coprime::tl
