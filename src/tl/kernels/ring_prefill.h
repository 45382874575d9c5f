// Prefill over many PEs: keys and values move, queries and their states stay. ADR-0060, section 5.5.
//
// Two rings, one inside the other. The keys of a CUBE go round the CUBEs of the group: each PE runs its own ring with
// the PEs of its number in the other CUBEs, over the keys of its own HBM region. At each step, what the PEs of a CUBE
// hold goes round among them, so that each meets all of it with its share of the query rows. Regions go from HBM to HBM
// beside the computation and lie in two buffers that take turns; query tiles, and their states, lie in HBM, too, while
// they are not worked on. So keys move once a chunk, however many query tiles it has. Each CUBE has one query head of
// the KV head's G; one CUBE alone has all of them, in its rows.
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
  uint32_t turns = 1, first_turn = 0;
  int64_t heads = 1, d = 128, tile = 64;
  int64_t region = 64;        // keys in a PE's region: a multiple of the tile
  int64_t rows = 64;          // query positions of a tile
  int share = 0, shares = 1;  // this PE has every shares-th tile, from the share-th on
  int64_t chunk = 64;         // positions of a chunk of queries
  int64_t query_begin = 0, query_end = 0;
  bool skip_future = true;  // false: the full grid, masked
  float scale = 1;
  RingPlace cubes, pes;
};

// Keys and values of a region in HBM.
struct KvRegion {
  Buffer k, v;

  HbmRef keys(const RingPrefillArgs& args) const {
    return {k, 0, static_cast<int32_t>(args.region / args.tile * args.d), static_cast<int32_t>(args.tile)};
  }
  HbmRef values(const RingPrefillArgs& args) const {
    return {v, 0, static_cast<int32_t>(args.region), static_cast<int32_t>(args.d)};
  }
};

// Where regions land that come from other CUBEs, and from PEs of the own one; the states of query tiles [rows, 1],
// [rows, 1], [rows, d], one tile behind another.
inline constexpr KvRegion kFromCubes[] = {{plain_buffer(0), plain_buffer(1)}, {plain_buffer(2), plain_buffer(3)}};
inline constexpr KvRegion kFromPes[] = {{plain_buffer(4), plain_buffer(5)}, {plain_buffer(6), plain_buffer(7)}};
inline constexpr Buffer kStateM = plain_buffer(8, Type::kF32), kStateL = plain_buffer(9, Type::kF32),
                        kStateO = plain_buffer(10, Type::kF32);

// The query positions [begin, end) of a chunk. This PE has every shares-th tile of them.
struct QueryChunk {
  uint32_t turn = 0;
  int64_t begin = 0, end = 0;
  int64_t rows = 0, first = 0, stride = 0;  // positions of a tile, where the first begins, from one to the next

  int64_t tile_begin(int64_t tile) const { return first + tile * stride; }
  int64_t width(int64_t tile) const { return std::min(rows, end - tile_begin(tile)); }
  int64_t count() const { return first >= end ? 0 : (end - first + stride - 1) / stride; }
  int64_t whole() const { return count() - (count() > 0 && width(count() - 1) < rows ? 1 : 0); }  // tiles that are
};

struct PendingKv {
  Pending k, v;
};

template <class M>
Task pass_on(M& tl, const RingPrefillArgs& args, const RingPlace& ring, const KvRegion& have, const KvRegion& next,
             PendingKv& pending) {
  pending.k = co_await tl.recv_async(ring.previous, next.keys(args));
  pending.v = co_await tl.recv_async(ring.previous, next.values(args));
  co_await tl.send(ring.next, have.keys(args));
  co_await tl.send(ring.next, have.values(args));
}

template <class M>
Task await_kv(M& tl, const PendingKv& pending) {
  co_await tl.wait(pending.k);
  co_await tl.wait(pending.v);
}

// The state of a query tile, in HBM between the regions that it meets.
struct StateRefs {
  HbmRef m, l, o;

  StateRefs(const RingPrefillArgs& args, const QueryChunk& chunk, int64_t tile) {
    const int64_t at = tile * args.heads * args.rows;
    const auto rows = static_cast<int32_t>(args.heads * chunk.width(tile));
    m = {kStateM, at, rows, 1}, l = {kStateL, at, rows, 1};
    o = {kStateO, at * args.d, rows, static_cast<int32_t>(args.d)};
  }
};

template <class M>
Task load_state(M& tl, StateRefs refs, RunningState& running) {
  running.state.m = co_await tl.load(refs.m);
  running.state.l = co_await tl.load(refs.l);
  running.state.o = co_await tl.load(refs.o);
  running.spare = tl.empty(refs.m.rows, 1);
}

// A query tile against a region whose first key has position `key`. fresh: it has met none before.
template <class M>
Task fold_region(M& tl, const RingPrefillArgs& args, const QueryChunk& chunk, int64_t query_tile, const KvRegion& kv,
                 int64_t key, bool fresh) {
  const int64_t width = chunk.width(query_tile), begin = chunk.tile_begin(query_tile), rows = args.heads * width;
  const auto scope = tl.scratch_scope();
  QueryBlock queries{{}, args.heads, begin, width};
  queries.q = co_await tl.load(
      tl.ref(buffer_of(Content::kQueries, chunk.turn), (begin - args.query_begin) * args.heads * args.d, rows, args.d));
  const StateRefs refs(args, chunk, query_tile);
  RunningState running;
  const Task start = fresh ? begin_state(tl, rows, args.d, running) : load_state(tl, refs, running);
  co_await start;
  const int64_t tiles = args.region / args.tile;
  const int64_t past = std::clamp((begin - key) / args.tile, int64_t{0}, tiles);  // so many are wholly visible
  auto loop = tl.loop();
  for (int64_t j = 0; j < tiles; ++j) {
    if (j < past) j += co_await loop.next(past - j);
    if (j == tiles) break;
    const int64_t first = key + j * args.tile;
    const attention::TileKind kind = attention::tile_kind(begin, begin + width, first, first + args.tile);
    if (kind == attention::TileKind::kFuture && args.skip_future) break;
    const Task fold = fold_tile(tl, queries, tl.ref(kv.k, j * args.tile * args.d, args.d, args.tile),
                                tl.ref(kv.v, j * args.tile * args.d, args.tile, args.d), first,
                                kind != attention::TileKind::kPast, args.scale, running);
    co_await fold;
  }
  co_await tl.store(refs.m, running.state.m);
  co_await tl.store(refs.l, running.state.l);
  co_await tl.store(refs.o, running.state.o);
  co_await tl.wait_all();
}

template <class M>
Task fold_chunk(M& tl, const RingPrefillArgs& args, const QueryChunk& chunk, const KvRegion& kv, int64_t key,
                bool fresh) {
  auto loop = tl.loop();
  for (int64_t tile = 0; tile < chunk.count(); ++tile) {
    if (key + args.region <= chunk.tile_begin(tile) && tile < chunk.whole()) {
      tile += co_await loop.next(chunk.whole() - tile, 1);
      if (tile == chunk.count()) break;
    }
    const bool future = key >= chunk.tile_begin(tile) + chunk.width(tile);
    if (future && args.skip_future && !fresh) continue;
    const Task fold = fold_region(tl, args, chunk, tile, kv, key, fresh);
    co_await fold;
  }
}

// The regions of a CUBE's block go round its PEs; own: the one that is here.
template <class M>
Task spread(M& tl, const RingPrefillArgs& args, const QueryChunk& chunk, const KvRegion& own, int64_t block,
            bool fresh) {
  for (int step = 0; step < args.pes.size; ++step) {
    const KvRegion& have = step == 0 ? own : kFromPes[step % 2];
    const bool more = step + 1 < args.pes.size;
    PendingKv pending;
    if (more) {
      const Task move = pass_on(tl, args, args.pes, have, kFromPes[(step + 1) % 2], pending);
      co_await move;
    }
    const int64_t key = (block * args.pes.size + args.pes.block_at(step)) * args.region;
    const Task fold = fold_chunk(tl, args, chunk, have, key, fresh && step == 0);
    co_await fold;
    if (more) {
      const Task arrive = await_kv(tl, pending);
      co_await arrive;
    }
  }
}

// All keys that the chunk's queries see; all PEs of the group take part, those without queries too.
template <class M>
Task ring_chunk(M& tl, const RingPrefillArgs& args, const QueryChunk& chunk, int64_t number) {
  const KvRegion own = {buffer_of(Content::kKeys, chunk.turn), buffer_of(Content::kValues, chunk.turn)};
  bool fresh = true;
  for (int step = 0; step < args.cubes.size; ++step) {
    const KvRegion& have = step == 0 ? own : kFromCubes[step % 2];
    const bool more = step + 1 < args.cubes.size;
    PendingKv pending;
    if (more) {
      const Task move = pass_on(tl, args, args.cubes, have, kFromCubes[(step + 1) % 2], pending);
      co_await move;
    }
    const int64_t block = args.cubes.block_at(step);
    if (block <= number || !args.skip_future) {
      const Task all = spread(tl, args, chunk, have, block, fresh);
      co_await all;
      fresh = false;
    }
    if (more) {
      const Task arrive = await_kv(tl, pending);
      co_await arrive;
    }
  }
  for (int64_t tile = 0; tile < chunk.count(); ++tile) {
    const auto scope = tl.scratch_scope();
    RunningState running;
    const Task load = load_state(tl, StateRefs(args, chunk, tile), running);
    co_await load;
    const int64_t offset = (chunk.tile_begin(tile) - args.query_begin) * args.heads * args.d;
    const Task store = store_output(
        tl, running, tl.ref(buffer_of(Content::kOutput, chunk.turn), offset, args.heads * chunk.width(tile), args.d));
    co_await store;
  }
  co_await tl.wait_all();
}

template <class M>
Task ring_prefill(M& tl, const RingPrefillArgs& args) {
  for (uint32_t turn = args.first_turn; turn < args.first_turn + args.turns; ++turn) {
    for (int64_t begin = args.query_begin; begin < args.query_end;) {
      const int64_t number = begin / args.chunk, end = std::min((number + 1) * args.chunk, args.query_end);
      const QueryChunk chunk{turn, begin, end, args.rows, begin + args.share * args.rows, args.shares * args.rows};
      const Task all = ring_chunk(tl, args, chunk, number);
      co_await all;
      begin = end;
    }
  }
}

}  // namespace coprime::tl
