// Decode of a short context: a CUBE owns whole KV heads, one after another; its PEs share a head's keys and reduce
// within the CUBE. ADR-0060, section B (short and long contexts).
#pragma once

#include <vector>

#include "tl/kernels/decode.h"

namespace coprime::tl {

struct ShortDecodeArgs {
  std::vector<DecodeArgs> heads;
};

template <class M>
Task short_decode_head(M& tl, const DecodeArgs& args) {
  const auto scope = tl.scratch_scope();
  const Task head = decode(tl, args);
  co_await head;
  co_await tl.wait_all();
}

template <class M>
Task short_decode(M& tl, const ShortDecodeArgs& args) {
  for (const DecodeArgs& one : args.heads) {
    const Task head = short_decode_head(tl, one);
    co_await head;
  }
}

}  // namespace coprime::tl
