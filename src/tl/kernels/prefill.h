// Prefill on one PE that owns all keys: blocks of queries of all G query heads, each against the tiles that it sees.
// Tiles wholly in its future are skipped: neither read nor computed. ADR-0060, section 5.4.
#pragma once

#include <algorithm>

#include "tl/kernels/fold.h"

namespace coprime::tl {

struct PrefillArgs {
  Buffer q, k, v, o;  // K: tiles of [d, tile] one behind another; V: [tokens, d]; Q, O: blocks (rank_memory.h)
  int64_t heads = 8, d = 128, tile = 64;
  int64_t block = 64;  // query positions at a time
  int64_t query_begin = 0, query_end = 0;
  int64_t tokens = 0;  // keys that are valid: at least query_end
  float scale = 1;
};

template <class M>
Task prefill_block(M& tl, const PrefillArgs& args, int64_t begin) {
  const int64_t end = std::min(begin + args.block, args.query_end), rows = args.heads * (end - begin);
  const int64_t offset = (begin - args.query_begin) * args.heads * args.d;
  const auto scope = tl.scratch_scope();
  QueryBlock queries{{}, args.heads, begin, end - begin};
  queries.q = co_await tl.load(tl.ref(args.q, offset, rows, args.d));
  RunningState running;
  const Task start = begin_state(tl, rows, args.d, running);
  co_await start;
  const int64_t past = begin / args.tile;  // so many tiles are wholly visible
  auto loop = tl.loop();
  for (int64_t j = 0; j * args.tile < args.tokens; ++j) {
    if (j < past) j += co_await loop.next(past - j);
    const int64_t key = j * args.tile;
    if (key >= args.tokens) break;
    const int64_t width = std::min(args.tile, args.tokens - key);
    const attention::TileKind kind = attention::tile_kind(begin, end, key, key + width);
    if (kind == attention::TileKind::kFuture) break;
    const Task fold =
        fold_tile(tl, queries, tl.ref(args.k, key * args.d, args.d, width), tl.ref(args.v, key * args.d, width, args.d),
                  key, kind == attention::TileKind::kPartial, args.scale, running);
    co_await fold;
  }
  const Task store = store_output(tl, running, tl.ref(args.o, offset, rows, args.d));
  co_await store;
}

template <class M>
Task prefill(M& tl, const PrefillArgs& args) {
  for (int64_t begin = args.query_begin; begin < args.query_end; begin += args.block) {
    const Task block = prefill_block(tl, args, begin);
    co_await block;
  }
}

}  // namespace coprime::tl
