// Decode: one query position of a KV head's G query heads, stacked into rows, against the keys that this rank holds.
// The sweep gives (m, l, O) over those; reduce.h brings them to the group's root. ADR-0060, sections 3 to 5.
//
//   opt1   the CPU waits for each tile's scores: the matrix engine idles meanwhile
//   opt3   the next tile's scores are under way during this tile's softmax
//   opt3v  so are the next tile's values, by a lazy load
//   opt2   softmax and P V are one command of the scheduler
#pragma once

#include <algorithm>
#include <limits>

#include "tl/kernels/fold.h"
#include "tl/kernels/reduce.h"
#include "tl/tl.h"

namespace coprime::tl {

enum class DecodeVariant : uint8_t { kOpt1, kOpt3, kOpt3v, kOpt2 };

struct DecodeArgs {
  Buffer q, k, v, o;  // of this rank. K: tiles of [d, tile] one behind another; V: [tokens, d]; O: of the group's root
  DecodeVariant variant = DecodeVariant::kOpt3;
  int64_t rows = 8, d = 128, tile = 64;
  int64_t tokens = 0;  // that this rank holds
  float scale = 1;
  bool scopes = true;  // false: nothing is recycled, and all temporaries are f32 (what a long context must not do)
  ReduceArgs reduce;
};

// Of tile j.
struct DecodeTiles {
  const DecodeArgs& args;

  int64_t full() const { return args.tokens / args.tile; }  // tiles that are not short
  int64_t count() const { return (args.tokens + args.tile - 1) / args.tile; }
  int64_t width(int64_t j) const { return std::min(args.tile, args.tokens - j * args.tile); }
  HbmRef k(int64_t j) const {
    return {args.k, j * args.tile * args.d, static_cast<int32_t>(args.d), static_cast<int32_t>(width(j))};
  }
  HbmRef v(int64_t j) const {
    return {args.v, j * args.tile * args.d, static_cast<int32_t>(width(j)), static_cast<int32_t>(args.d)};
  }
};

// Two tensors that take turns, for what outlives a tile; a short last tile has its own.
template <class M>
class Turns {
 public:
  // Tile j is [rows, width(j)], or [width(j), d] where `values`.
  Turns(M& tl, const DecodeTiles& tiles, bool values) : last_(tiles.count() - 1) {
    const DecodeArgs& args = tiles.args;
    const auto make = [&](int64_t width) {
      return values ? tl.empty(width, args.d, Type::kBf16) : tl.empty(args.rows, width);
    };
    if (last_ > 0 || (last_ == 0 && tiles.width(0) == args.tile)) turns_[0] = make(args.tile);
    if (last_ > 1 || (last_ == 1 && tiles.width(1) == args.tile)) turns_[1] = make(args.tile);
    if (last_ >= 0 && tiles.width(last_) < args.tile) short_ = make(tiles.width(last_));
  }
  const Tensor& operator[](int64_t j) const { return j == last_ && short_ ? short_ : turns_[j % 2]; }

 private:
  int64_t last_;
  Tensor turns_[2], short_;
};

template <class M>
Task decode_sweep(M& tl, const DecodeArgs& args, State& state) {
  const DecodeTiles tiles{args};
  const int64_t n = tiles.count(), rows = args.rows, d = args.d;
  const DecodeVariant variant = args.variant;
  const Epilogue scale = scaled(args.scale);

  const Tensor q = co_await tl.load(tl.ref(args.q, 0, rows, d));
  state.m = co_await tl.full(rows, 1, -std::numeric_limits<float>::infinity());
  state.l = co_await tl.full(rows, 1, 0);
  state.o = co_await tl.full(rows, d, 0);
  if (n == 0) co_return;

  if (variant == DecodeVariant::kOpt2) {
    const Turns<M> scores(tl, tiles, false);
    auto loop = tl.loop();
    for (int64_t j = 0; j < n; ++j) {
      if (j < tiles.full()) j += co_await loop.next(tiles.full() - j);
      if (j == n) break;
      co_await tl.composite_gemm(q, tiles.k(j), scores[j], scale);
      co_await tl.softmax_pv(scores[j], tiles.v(j), state);
    }
    co_await tl.wait_all();
    co_return;
  }

  const bool ahead = variant != DecodeVariant::kOpt1, lazy = variant == DecodeVariant::kOpt3v;
  State next;
  if (args.scopes) next = {tl.empty(rows, 1), tl.empty(rows, 1), tl.empty(rows, d)};
  const DecodeArgs none{};
  const Turns<M> scores(tl, ahead ? tiles : DecodeTiles{none}, false),
      values(tl, lazy ? tiles : DecodeTiles{none}, true);
  if (ahead) co_await tl.composite_gemm(q, tiles.k(0), scores[0], scale);
  if (lazy) co_await tl.load(tiles.v(0), values[0]);
  const int64_t alike = tiles.full() - (ahead ? 1 : 0);  // the first so many tiles
  auto loop = tl.loop();
  for (int64_t j = 0; j < n; ++j) {
    if (args.scopes && j < alike) j += co_await loop.next(alike - j);
    if (j == n) break;
    if (ahead && j + 1 < n) co_await tl.composite_gemm(q, tiles.k(j + 1), scores[j + 1], scale);
    if (lazy && j + 1 < n) co_await tl.load(tiles.v(j + 1), values[j + 1]);
    const auto scope = tl.scratch_scope(args.scopes);
    Tensor s;
    if (ahead) s = scores[j];
    if (!ahead) s = co_await tl.composite_gemm(q, tiles.k(j), {}, scale);

    const Tensor largest = co_await tl.max(s);
    const Tensor m = co_await tl.maximum(state.m, largest, next.m);
    const Tensor shifted = co_await tl.sub(s, m);
    const Tensor p = co_await tl.exp(shifted, args.scopes ? Type::kBf16 : Type::kF32);
    const Tensor change = co_await tl.sub(state.m, m);
    const Tensor factor = co_await tl.exp(change);
    const Tensor sum = co_await tl.sum(p);
    const Tensor scaled_l = co_await tl.mul(state.l, factor);
    const Tensor l = co_await tl.add(scaled_l, sum, next.l);

    Tensor pv;
    if (lazy) pv = co_await tl.composite_gemm(p, values[j]);
    if (!lazy) pv = co_await tl.composite_gemm(p, tiles.v(j));

    const Tensor scaled_o = co_await tl.mul(state.o, factor);
    const Tensor o = co_await tl.add(scaled_o, pv, next.o);
    next = args.scopes ? state : State{};
    state = {m, l, o};
  }
}

template <class M>
Task decode(M& tl, const DecodeArgs& args) {
  State state;
  ReduceBuffers buffers = reduce_buffers(tl, args.reduce, args.rows, args.d);
  const Task sweep = decode_sweep(tl, args, state);
  co_await sweep;
  bool root = false;
  const Task reduce = reduce_to_root(tl, args.reduce, state, buffers, root);
  co_await reduce;
  if (!root) co_return;
  note_state(tl, state);
  const Tensor out = co_await tl.div(state.o, state.l, Type::kBf16);
  co_await tl.store(tl.ref(args.o, 0, args.rows, args.d), out);
}

}  // namespace coprime::tl
