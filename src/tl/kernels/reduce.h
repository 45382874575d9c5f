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

template <class M>
Task send_state(M& tl, Peer to, const State& state) {
  co_await tl.send(to, state.m);
  co_await tl.send(to, state.l);
  co_await tl.send(to, state.o);
}

// state = merge(state, other), in new tensors.
template <class M>
Task merge_state(M& tl, State& state, const State& other) {
  const Tensor m = co_await tl.maximum(state.m, other.m);
  const Tensor change = co_await tl.sub(state.m, m);
  const Tensor factor = co_await tl.exp(change);
  const Tensor change2 = co_await tl.sub(other.m, m);
  const Tensor factor2 = co_await tl.exp(change2);
  const Tensor scaled_l = co_await tl.mul(state.l, factor);
  const Tensor scaled_l2 = co_await tl.mul(other.l, factor2);
  const Tensor l = co_await tl.add(scaled_l, scaled_l2);
  const Tensor scaled_o = co_await tl.mul(state.o, factor);
  const Tensor scaled_o2 = co_await tl.mul(other.o, factor2);
  const Tensor o = co_await tl.add(scaled_o, scaled_o2);
  state = {m, l, o};
}

// state = merge(state, what comes from `from`).
template <class M>
Task receive_and_merge(M& tl, Peer from, State& state) {
  const int32_t rows = state.o.rows, d = state.o.columns;
  auto scope = tl.scratch_scope();
  State other;
  other.m = co_await tl.recv(from, rows, 1, Type::kF32);
  other.l = co_await tl.recv(from, rows, 1, Type::kF32);
  other.o = co_await tl.recv(from, rows, d, Type::kF32);
  const Task merge = merge_state(tl, state, other);
  co_await merge;
  scope.keep(state.m), scope.keep(state.l), scope.keep(state.o);
}

template <class M>
Task reduce_to_root(M& tl, const ReduceArgs& args, State& state, bool& root) {
  for (const ReduceLevel* level : {&args.within, &args.across}) {
    for (const Peer& child : level->children) {
      const Task merge = receive_and_merge(tl, child, state);
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
