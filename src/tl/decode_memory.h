// What a decode needs of the arena, in closed form: whether a rank's keys fit as one tile, so that they are done in one
// shot (spec R52).
#pragma once

#include <cstdint>

#include "tl/kernels/decode.h"

namespace coprime::tl {

// Bytes at most, of a rank whose only tile has `keys` keys and that merges what others send.
int64_t one_shot_bytes(DecodeVariant variant, int64_t rows, int64_t d, int64_t keys);

// The most keys for which these are no more than `arena_bytes`; 0: none.
int64_t one_shot_keys(DecodeVariant variant, int64_t rows, int64_t d, int64_t arena_bytes);

}  // namespace coprime::tl
