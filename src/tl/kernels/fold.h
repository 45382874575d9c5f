// One tile of keys and values folded into an attention state, with many rows of queries: the step of every prefill
// kernel. ADR-0060, section 3.
#pragma once

#include <limits>

#include "attention/causal.h"
#include "tl/kernels/reduce.h"
#include "tl/tl.h"

namespace coprime::tl {

inline Epilogue scaled(float scale) { return {EpilogueKind::kScale, scale, {}}; }

// m changes places with `spare` at each tile; l and O are updated where they lie.
struct RunningState {
  State state;
  Tensor spare;
};

template <class M>
Task begin_state(M& tl, int64_t rows, int64_t d, RunningState& running) {
  running.state.m = co_await tl.full(rows, 1, -std::numeric_limits<float>::infinity());
  running.state.l = co_await tl.full(rows, 1, 0);
  running.state.o = co_await tl.full(rows, d, 0);
  running.spare = tl.empty(rows, 1);
}

// The block of queries [begin, begin + width), of `heads` query heads: rows head by head.
struct QueryBlock {
  Tensor q;
  int64_t heads = 1, begin = 0, width = 0;
};

// k [d, T] and v [T, d], both tensors or both in HBM; key: the position of their first key. masked: some key may lie
// behind some query.
template <class M, class Operand>
Task fold_tile(M& tl, const QueryBlock& queries, Operand k, Operand v, int64_t key, bool masked, float scale,
               RunningState& running) {
  State& state = running.state;
  const auto scope = tl.scratch_scope();
  const Tensor s = co_await tl.composite_gemm(queries.q, k, {}, scaled(scale));
  if (masked) {
    Tensor mask = co_await tl.causal_mask(queries.width, s.columns, queries.begin - key);
    if (queries.heads > 1) {  // the same for each head
      const Tensor flat = tl.view(mask, 1, mask.elements());
      const Tensor repeated = co_await tl.broadcast(flat, queries.heads);
      mask = tl.view(repeated, s.rows, s.columns);
    }
    co_await tl.add(s, mask, s);
  }
  const Tensor largest = co_await tl.max(s);
  const Tensor m = co_await tl.maximum(state.m, largest, running.spare);
  co_await tl.sub(s, m, s);
  const Tensor p = co_await tl.exp(s, Type::kBf16);
  const Tensor change = co_await tl.sub(state.m, m);
  const Tensor factor = co_await tl.exp(change);
  const Tensor sum = co_await tl.sum(p);
  co_await tl.mul(state.l, factor, state.l);
  co_await tl.add(state.l, sum, state.l);
  const Tensor pv = co_await tl.composite_gemm(p, v);
  co_await tl.mul(state.o, factor, state.o);
  co_await tl.add(state.o, pv, state.o);
  running.spare = state.m;
  state.m = m;
}

// The output of the block, into its rows of `to`. After it nothing is under way.
template <class M>
Task store_output(M& tl, const RunningState& running, HbmRef to) {
  note_state(tl, running.state);
  const Tensor out = co_await tl.div(running.state.o, running.state.l, Type::kBf16);
  co_await tl.store(to, out);
  co_await tl.wait_all();
}

}  // namespace coprime::tl
