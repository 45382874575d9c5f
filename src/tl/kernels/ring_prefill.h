// Prefill over many PEs: keys and values move, queries and their states stay. ADR-0060, section 5.5.
//
// Two rings, one inside the other. The keys of a CUBE go round the CUBEs of the group: each PE runs its own ring with
// the PEs of its number in the other CUBEs, over the keys of its own HBM region, a tile at a time (a CUBE's whole
// block, let alone its scores, would not fit into TCM). At each step, what the PEs of a CUBE hold goes round among
// them, so that each meets all of it with its share of the query rows. Each CUBE has one query head of the KV head's G;
// one CUBE alone has all of them, in its rows.
//
// A prompt runs as `size` chunks of queries, as many as there are blocks of keys. A block that lies behind the chunk is
// passed on, but neither spread nor computed. A receive is posted before the send that makes room for it, so that no
// depth of queues, 1 included, lets the ring stand still.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "attention/ring_order.h"
#include "tl/kernels/fold.h"
#include "tl/rank_memory.h"

namespace coprime::tl {

// A place on a ring of neighbours. blocks: which block of keys each position holds at first.
struct RingPlace {
  int size = 1, position = 0;
  Peer next, previous;
  std::vector<int> blocks = {0};

  // What is here after so many steps.
  int block_at(int step) const { return blocks[static_cast<size_t>(attention::ring_block(position, step, size))]; }
};

struct RingPrefillArgs {
  // Of each turn (KV or query head): Q and O as blocks (rank_memory.h), K: tiles of [d, tile], V: [tokens, d].
  uint32_t turns = 1;
  int64_t heads = 1, d = 128, tile = 64;
  int64_t region = 64;        // keys in a PE's region: a multiple of the tile
  int64_t rows = 64;          // query positions of this PE in a pass
  int share = 0, shares = 1;  // of each pass, this PE has the share-th part
  int64_t chunk = 64;         // positions of a chunk of queries
  int64_t query_begin = 0, query_end = 0;
  bool skip_future = true;  // false: the full grid, masked
  float scale = 1;
  RingPlace cubes, pes;
};

struct KvTile {
  Tensor k, v;
};

template <class M>
KvTile empty_kv(M& tl, const RingPrefillArgs& args) {
  return {tl.empty(args.d, args.tile, Type::kBf16), tl.empty(args.tile, args.d, Type::kBf16)};
}

struct PendingKv {
  Pending k, v;
};

template <class M>
Task pass_on(M& tl, const RingPlace& ring, const KvTile& have, const KvTile& next, PendingKv& pending) {
  pending.k = co_await tl.recv_async(ring.previous, next.k.rows, next.k.columns, next.k.type, next.k);
  pending.v = co_await tl.recv_async(ring.previous, next.v.rows, next.v.columns, next.v.type, next.v);
  co_await tl.send(ring.next, have.k);
  co_await tl.send(ring.next, have.v);
}

template <class M>
Task await_kv(M& tl, const PendingKv& pending) {
  co_await tl.wait(pending.k);
  co_await tl.wait(pending.v);
}

template <class M>
Task load_tile(M& tl, const RingPrefillArgs& args, uint32_t turn, int64_t tile, const KvTile& into) {
  const int64_t offset = tile * args.tile * args.d;
  co_await tl.load(tl.ref(buffer_of(Content::kKeys, turn), offset, args.d, args.tile), into.k);
  co_await tl.load(tl.ref(buffer_of(Content::kValues, turn), offset, args.tile, args.d), into.v);
}

// Tile `tile` of every region of a CUBE's block goes round the PEs; own: the one that is here.
template <class M>
Task spread(M& tl, const RingPrefillArgs& args, const QueryBlock& queries, const KvTile& own,
            const std::array<KvTile, 2>& buffers, int64_t block, int64_t tile, RunningState& running) {
  for (int step = 0; step < args.pes.size; ++step) {
    const KvTile& have = step == 0 ? own : buffers[static_cast<size_t>(step % 2)];
    const bool more = step + 1 < args.pes.size;
    PendingKv pending;
    if (more) {
      const Task move = pass_on(tl, args.pes, have, buffers[static_cast<size_t>((step + 1) % 2)], pending);
      co_await move;
    }
    const int64_t key = (block * args.pes.size + args.pes.block_at(step)) * args.region + tile * args.tile;
    const attention::TileKind kind =
        attention::tile_kind(queries.begin, queries.begin + queries.width, key, key + args.tile);
    if (queries.width > 0 && (kind != attention::TileKind::kFuture || !args.skip_future)) {
      const bool masked = kind != attention::TileKind::kPast;
      const Task fold = fold_tile(tl, queries, have.k, have.v, key, masked, args.scale, running);
      co_await fold;
    }
    if (more) {
      const Task arrive = await_kv(tl, pending);
      co_await arrive;
    }
  }
}

// All keys against the query positions [begin, begin + width) of this PE; all PEs of the group take part, those without
// rows too.
template <class M>
Task ring_pass(M& tl, const RingPrefillArgs& args, uint32_t turn, int64_t chunk, int64_t begin, int64_t width) {
  const int64_t rows = args.heads * width, offset = (begin - args.query_begin) * args.heads * args.d;
  const auto scope = tl.scratch_scope();
  QueryBlock queries{{}, args.heads, begin, width};
  RunningState running;
  if (width > 0) {
    queries.q = co_await tl.load(tl.ref(buffer_of(Content::kQueries, turn), offset, rows, args.d));
    const Task start = begin_state(tl, rows, args.d, running);
    co_await start;
  }
  const std::array<KvTile, 2> held = {empty_kv(tl, args), empty_kv(tl, args)};
  std::array<KvTile, 2> spreading;
  if (args.pes.size > 1) spreading = {empty_kv(tl, args), empty_kv(tl, args)};

  const int64_t tiles = args.region / args.tile;
  size_t at = 0;
  const Task first = load_tile(tl, args, turn, 0, held[at]);
  co_await first;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    for (int step = 0; step < args.cubes.size; ++step) {
      const KvTile& have = held[at];
      const KvTile& next = held[at ^ 1];
      const bool more = step + 1 < args.cubes.size;
      PendingKv pending;
      if (more) {
        const Task move = pass_on(tl, args.cubes, have, next, pending);
        co_await move;
      } else if (tile + 1 < tiles) {
        const Task load = load_tile(tl, args, turn, tile + 1, next);
        co_await load;
      }
      const int64_t block = args.cubes.block_at(step);
      if (block <= chunk || !args.skip_future) {
        const Task all = spread(tl, args, queries, have, spreading, block, tile, running);
        co_await all;
      }
      if (more) {
        const Task arrive = await_kv(tl, pending);
        co_await arrive;
      }
      at ^= 1;
    }
  }
  if (width > 0) {
    const Task store = store_output(tl, running, tl.ref(buffer_of(Content::kOutput, turn), offset, rows, args.d));
    co_await store;
  } else {
    co_await tl.wait_all();
  }
}

template <class M>
Task ring_prefill(M& tl, const RingPrefillArgs& args) {
  for (uint32_t turn = 0; turn < args.turns; ++turn) {
    for (int64_t begin = args.query_begin; begin < args.query_end;) {
      const int64_t chunk = begin / args.chunk, end = std::min((chunk + 1) * args.chunk, args.query_end);
      for (; begin < end; begin += args.shares * args.rows) {
        const int64_t mine = std::min(begin + args.share * args.rows, end);
        const Task pass = ring_pass(tl, args, turn, chunk, mine, std::min(args.rows, end - mine));
        co_await pass;
      }
      begin = end;
    }
  }
}

}  // namespace coprime::tl
