// (m, l, O) of all ranks of a group, merged at its root: PEs of each CUBE to the CUBE's root PE, then those to the
// group's. Who sends to whom, and in which order a place receives, is fixed before the launch. ADR-0060, section 4.
#pragma once

#include <vector>

#include "tl/tl.h"

namespace coprime::tl {

// What this place does in the reduction: receives from these, in order, then sends to that one; the root does not.
struct ReduceLevel {
  std::vector<Peer> children;
  bool root = true;
  Peer parent;
};

struct ReduceArgs {
  ReduceLevel within, across;  // PEs of the CUBE; CUBEs of the group (only the root PE of a CUBE takes part)
};

// Shows m and l as they are before the division.
template <class M>
void note_state(M& tl, const State& state) {
  tl.note("m", state.m);
  tl.note("l", state.l);
}

template <class M>
Task send_state(M& tl, Peer to, const State& state) {
  co_await tl.send(to, state.m);
  co_await tl.send(to, state.l);
  co_await tl.send(to, state.o);
}

// Where what comes is put, and where the merged state is: made before the sweep, so that no receive waits for the
// sweep's temporaries.
struct ReduceBuffers {
  State arrived, next;
};

template <class M>
ReduceBuffers reduce_buffers(M& tl, const ReduceArgs& args, int64_t rows, int64_t d) {
  if (args.within.children.empty() && args.across.children.empty()) return {};
  return {{tl.empty(rows, 1), tl.empty(rows, 1), tl.empty(rows, d)},
          {tl.empty(rows, 1), tl.empty(rows, 1), tl.empty(rows, d)}};
}

// state = merge(state, other). The new state lies in `next`; the two then change places.
template <class M>
Task merge_state(M& tl, State& state, const State& other, State& next) {
  const auto scope = tl.scratch_scope();
  const Tensor m = co_await tl.maximum(state.m, other.m, next.m);
  const Tensor change = co_await tl.sub(state.m, m);
  const Tensor factor = co_await tl.exp(change);
  const Tensor change2 = co_await tl.sub(other.m, m);
  const Tensor factor2 = co_await tl.exp(change2);
  const Tensor scaled_l = co_await tl.mul(state.l, factor);
  const Tensor scaled_l2 = co_await tl.mul(other.l, factor2);
  const Tensor l = co_await tl.add(scaled_l, scaled_l2, next.l);
  const Tensor scaled_o = co_await tl.mul(state.o, factor);
  const Tensor scaled_o2 = co_await tl.mul(other.o, factor2);
  const Tensor o = co_await tl.add(scaled_o, scaled_o2, next.o);
  next = state;
  state = {m, l, o};
}

// state = merge(state, what comes from `from`).
template <class M>
Task receive_and_merge(M& tl, Peer from, State& state, ReduceBuffers& buffers) {
  const int32_t rows = state.o.rows, d = state.o.columns;
  const State& other = buffers.arrived;
  co_await tl.recv(from, rows, 1, Type::kF32, other.m);
  co_await tl.recv(from, rows, 1, Type::kF32, other.l);
  co_await tl.recv(from, rows, d, Type::kF32, other.o);
  const Task merge = merge_state(tl, state, other, buffers.next);
  co_await merge;
}

template <class M>
Task reduce_to_root(M& tl, const ReduceArgs& args, State& state, ReduceBuffers& buffers, bool& root) {
  for (const ReduceLevel* level : {&args.within, &args.across}) {
    for (const Peer& child : level->children) {
      const Task merge = receive_and_merge(tl, child, state, buffers);
      co_await merge;
    }
    root = level->root;
    if (root) continue;
    const Task send = send_state(tl, level->parent, state);
    co_await send;
    co_return;
  }
}

}  // namespace coprime::tl
