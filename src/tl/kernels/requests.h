// Several requests on the same PEs, in a fixed order: a PE goes on with the next as soon as its own part of one is
// over, while others still reduce that or pass its keys on. What a reduction takes is hidden behind the next request's
// sweep, but for the PE that is its root. ADR-0060, section 5.3; spec R59, X36d. The whole KV heads that a CUBE owns in
// decode of a short context follow each other alike; its PEs share a head's keys and reduce within it (section B).
#pragma once

#include <variant>
#include <vector>

#include "tl/kernels/decode.h"
#include "tl/kernels/prefill.h"
#include "tl/kernels/ring_prefill.h"

namespace coprime::tl {

using RequestArgs = std::variant<DecodeArgs, PrefillArgs, RingPrefillArgs>;

struct RequestsArgs {
  std::vector<RequestArgs> requests;
};

template <class M>
Task one_request(M& tl, const RequestArgs& args) {
  struct Start {
    M& tl;
    Task operator()(const DecodeArgs& one) const { return decode(tl, one); }
    Task operator()(const PrefillArgs& one) const { return prefill(tl, one); }
    Task operator()(const RingPrefillArgs& one) const { return ring_prefill(tl, one); }
  };
  const auto scope = tl.scratch_scope();
  const Task kernel = std::visit(Start{tl}, args);
  co_await kernel;
  co_await tl.wait_all();
}

template <class M>
Task in_turn(M& tl, const RequestsArgs& args) {
  for (const RequestArgs& one : args.requests) {
    const Task request = one_request(tl, one);
    co_await request;
  }
}

}  // namespace coprime::tl
