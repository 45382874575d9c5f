// A sum over all CUBEs that every CUBE gets: rows of CUBEs to the centre column, the centre column to its middle, a
// ring over the SIPs, and the same ways back. The pattern that decode's reduction comes from, and the one to compare
// with. ADR-0060, section 4.2.
#pragma once

#include <vector>

#include "tl/kernels/reduce.h"

namespace coprime::tl {

struct AllReduceArgs {
  Buffer in, out;  // bf16 [rows, d]; f32 [rows, d]
  int64_t rows = 8, d = 128;
  ReduceLevel cubes;      // what this CUBE does on the way up; on the way down the same in reverse
  int sips = 1, sip = 0;  // the ring of SIPs (of the root CUBEs alone)
  Peer next_sip, previous_sip;
};

// Each root passes on what it gets, and adds all in the order of SIPs: the same bits everywhere.
template <class M>
Task all_reduce_sips(M& tl, const AllReduceArgs& args, Tensor& sum) {
  std::vector<Tensor> parts(static_cast<size_t>(args.sips));
  int from = args.sip;
  parts[static_cast<size_t>(from)] = sum;
  for (int round = 1; round < args.sips; ++round) {
    const Tensor next = tl.empty(args.rows, args.d);
    const Pending pending = co_await tl.recv_async(args.previous_sip, args.rows, args.d, Type::kF32, next);
    co_await tl.send(args.next_sip, parts[static_cast<size_t>(from)]);
    from = (from + args.sips - 1) % args.sips;
    parts[static_cast<size_t>(from)] = co_await tl.wait(pending);
  }
  Tensor total = parts[0];
  for (size_t sip = 1; sip < parts.size(); ++sip) total = co_await tl.add(total, parts[sip]);
  sum = total;
}

template <class M>
Task all_reduce(M& tl, const AllReduceArgs& args) {
  const Tensor x = co_await tl.load(tl.ref(args.in, 0, args.rows, args.d));
  const Tensor zero = co_await tl.full(args.rows, 1, 0);
  Tensor sum = co_await tl.add(x, zero);
  for (const Peer& child : args.cubes.children) {
    const Tensor other = co_await tl.recv(child, args.rows, args.d, Type::kF32);
    sum = co_await tl.add(sum, other);
  }
  if (!args.cubes.root) {
    co_await tl.send(args.cubes.parent, sum);
    sum = co_await tl.recv(args.cubes.parent, args.rows, args.d, Type::kF32);
  } else if (args.sips > 1) {
    const Task ring = all_reduce_sips(tl, args, sum);
    co_await ring;
  }
  for (size_t i = args.cubes.children.size(); i > 0; --i) co_await tl.send(args.cubes.children[i - 1], sum);
  co_await tl.store(tl.ref(args.out, 0, args.rows, args.d), sum);
}

}  // namespace coprime::tl
