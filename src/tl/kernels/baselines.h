// What ADR-0060 replaced, to measure what that gained: decode whose states go to every rank (the K/V fan-out is
// ring_prefill over all ranks), blocking products, and heads packed into the columns of K, which cannot work for more
// query heads than KV heads.
#pragma once

#include "tl/kernels/decode.h"
#include "tl/kernels/ring_prefill.h"

namespace coprime::tl {

// All states go round the ring of all ranks; every rank merges every one, in the order in which they come.
struct FanOutArgs {
  DecodeArgs sweep;
  RingPlace ranks;
  bool stores = false;  // this rank writes the output; all have it
};

struct PendingState {
  Pending m, l, o;
};

template <class M>
Task receive_state(M& tl, Peer from, const State& into, PendingState& pending) {
  pending.m = co_await tl.recv_async(from, into.m.rows, 1, Type::kF32, into.m);
  pending.l = co_await tl.recv_async(from, into.l.rows, 1, Type::kF32, into.l);
  pending.o = co_await tl.recv_async(from, into.o.rows, into.o.columns, Type::kF32, into.o);
}

template <class M>
Task fan_out(M& tl, const FanOutArgs& args) {
  const int64_t rows = args.sweep.rows, d = args.sweep.d;
  const State buffers[2] = {{tl.empty(rows, 1), tl.empty(rows, 1), tl.empty(rows, d)},
                            {tl.empty(rows, 1), tl.empty(rows, 1), tl.empty(rows, d)}};
  State state, spare = {tl.empty(rows, 1), tl.empty(rows, 1), tl.empty(rows, d)};
  const Task sweep = decode_sweep(tl, args.sweep, state);
  co_await sweep;
  for (int step = 1; step < args.ranks.size; ++step) {
    const State have = step == 1 ? state : buffers[(step - 1) % 2];
    const State& next = buffers[step % 2];
    PendingState pending;
    const Task receive = receive_state(tl, args.ranks.previous, next, pending);
    co_await receive;
    const Task send = send_state(tl, args.ranks.next, have);
    co_await send;
    co_await tl.wait(pending.m);
    co_await tl.wait(pending.l);
    co_await tl.wait(pending.o);
    const Task merge = merge_state(tl, state, next, spare);
    co_await merge;
  }
  if (!args.stores) co_return;
  note_state(tl, state);
  const Tensor out = co_await tl.div(state.o, state.l, Type::kBf16);
  co_await tl.store(tl.ref(args.sweep.o, 0, rows, d), out);
}

// opt1 with products that the CPU waits for; the scale is an operation of its own.
template <class M>
Task blocking_decode(M& tl, const DecodeArgs& args) {
  const DecodeTiles tiles{args};
  ReduceBuffers buffers = reduce_buffers(tl, args.reduce, args.rows, args.d);
  const Tensor q = co_await tl.load(tl.ref(args.q, 0, args.rows, args.d));
  RunningState running;
  const Task start = begin_state(tl, args.rows, args.d, running);
  co_await start;
  State& state = running.state;
  const Tensor scale = co_await tl.full(args.rows, 1, args.scale);
  for (int64_t j = 0; j < tiles.count(); ++j) {
    const auto scope = tl.scratch_scope();
    const Tensor product = co_await tl.dot(q, tiles.k(j));
    const Tensor s = co_await tl.mul(product, scale);
    const Tensor largest = co_await tl.max(s);
    const Tensor m = co_await tl.maximum(state.m, largest, running.spare);
    const Tensor shifted = co_await tl.sub(s, m);
    const Tensor p = co_await tl.exp(shifted, Type::kBf16);
    const Tensor change = co_await tl.sub(state.m, m);
    const Tensor factor = co_await tl.exp(change);
    const Tensor sum = co_await tl.sum(p);
    co_await tl.mul(state.l, factor, state.l);
    co_await tl.add(state.l, sum, state.l);
    const Tensor pv = co_await tl.dot(p, tiles.v(j));
    co_await tl.mul(state.o, factor, state.o);
    co_await tl.add(state.o, pv, state.o);
    running.spare = state.m;
    state.m = m;
  }
  bool root = false;
  const Task reduce = reduce_to_root(tl, args.reduce, state, buffers, root);
  co_await reduce;
  if (!root) co_return;
  note_state(tl, state);
  const Tensor out = co_await tl.div(state.o, state.l, Type::kBf16);
  co_await tl.store(tl.ref(args.o, 0, args.rows, args.d), out);
}

// One product for all query heads at once, with K seen as [heads * d, T]: its bytes are those of one KV head, so that
// the view fails unless there is one query head.
template <class M>
Task head_packing(M& tl, const DecodeArgs& args) {
  const DecodeTiles tiles{args};
  const Tensor q = co_await tl.load(tl.ref(args.q, 0, args.rows, args.d));
  const Tensor packed_q = tl.view(q, 1, args.rows * args.d);
  for (int64_t j = 0; j < tiles.count(); ++j) {
    const auto scope = tl.scratch_scope();
    const Tensor k = co_await tl.load(tiles.k(j));
    const Tensor packed = tl.view(k, args.rows * args.d, tiles.width(j));
    co_await tl.dot(packed_q, packed);
  }
}

}  // namespace coprime::tl
