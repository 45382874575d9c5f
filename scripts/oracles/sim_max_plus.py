#!/usr/bin/env python3
"""The time of every kernel by the rules of docs/simulator-model.md alone: a second implementation, for the tests.

    sim_max_plus.py CASES     prints the ticks of each case, one a line

CASES has one JSON object a line: "chip" (the values of sim::Chip by their keys; contention is taken as false), what
`coprime sim run` asks for ("kernel", "variant", "context", "max_context", "tile", "rows", "d", "pes", "cubes",
"kv_heads", "kv_per_cube", "query_begin", "query_end", "query_rows"), "groups" (of a SIP), and for the PEs of a CUBE and
the CUBEs of a group, in this order: "meshes" [rows, columns], "rings" (places by position), and "reduce" [[from, to],
...] in the order in which each place receives.

This file has the kernels, as programs: generators of operations, each of which gives back the tensor that it makes.
max_plus_chip.py has the rules by which a PE performs them.
"""
import json
import sys
import types

from max_plus_chip import (WAIT_ALL, Network, Pe, Region, Tensor, fill, load, math, product, recv, recv_async, run_all,
                           send, softmax_pv, store, wait)

# ---- Kernels of decode


def state_of(rows, d):
    return Tensor(rows), Tensor(rows), Tensor(rows, d)


def begin(rows, d):
    return (yield fill(rows)), (yield fill(rows)), (yield fill(rows, d))


def absorb(s, v, state, new, in_place=False, what="composite"):
    """A tile's softmax(S), product and update. v: None in HBM. new: where the state will be, all of it or m alone."""
    (m, l, o), (m2, l2, o2) = state, new
    a = yield math(s, out=Tensor(s.rows))
    yield math(m, a, out=m2)
    b = yield math(s, m2)
    p = yield math(b, exp=True)
    e = yield math((yield math(m, m2)), exp=True)
    total = yield math(p, out=Tensor(s.rows))
    x = yield math(l, e, out=l if in_place else None)
    yield math(x, total, out=l if in_place else l2)
    u = yield product(p, v, o.columns, what=what)
    y = yield math(o, e, out=o if in_place else None)
    yield math(y, u, out=o if in_place else o2)
    return ((m2, l, o), (m, l2, o2)) if in_place else (new, state)


def merge(state, other, new):
    (m, l, o), (m2, l2, o2) = state, other
    yield math(m, m2, out=new[0])
    e = yield math((yield math(m, new[0])), exp=True)
    e2 = yield math((yield math(m2, new[0])), exp=True)
    x, x2 = (yield math(l, e)), (yield math(l2, e2))
    yield math(x, x2, out=new[1])
    y, y2 = (yield math(o, e)), (yield math(o2, e2))
    yield math(y, y2, out=new[2])
    return new, state


def closing(state):
    out = yield math(state[2], state[1], out=Tensor(state[2].rows, state[2].columns, 2))
    yield store(out)


def keys_of(case, ranks, rank):
    block = -(-case.max_context // ranks)
    return max(0, min(block, case.context - rank * block))


def sweep(case, keys):
    g, d, tile, variant = case.rows, case.d, case.tile, case.variant
    q = yield load(Tensor(g, d, 2))
    state, new = (yield from begin(g, d)), state_of(g, d)
    widths = [min(tile, keys - start) for start in range(0, keys, tile)]
    turns = [(Tensor(g, tile), Tensor(tile, d, 2)) for _ in range(2)]
    buffers = [turns[j % 2] if t == tile else (Tensor(g, t), Tensor(t, d, 2)) for j, t in enumerate(widths)]
    scale = None

    def prepare(j):
        yield product(q, None, widths[j], buffers[j][0])
        if variant == "opt3v":
            yield load(buffers[j][1])

    if case.kernel == "blocking-dot":
        scale, new = (yield fill(g)), (new[0], None, None)
    elif variant in ("opt3", "opt3v") and widths:
        yield from prepare(0)
    for j, t in enumerate(widths):
        if scale:
            s = yield math((yield product(q, None, t, what="dot")), scale)
            state, new = yield from absorb(s, None, state, new, True, "dot")
        elif variant == "opt2":
            yield from prepare(j)
            yield softmax_pv(buffers[j][0], state)
        elif variant == "opt1":
            s = yield product(q, None, t)
            state, new = yield from absorb(s, None, state, new)
        else:
            if j + 1 < len(widths):
                yield from prepare(j + 1)
            state, new = yield from absorb(buffers[j][0], buffers[j][1] if variant == "opt3v" else None, state, new)
    if variant == "opt2" and widths and not scale:
        yield WAIT_ALL
    return state


def family(messages, place):
    """Of a reduction: the children of a place, and its parent (None: it is the root)."""
    parents = [target for source, target in messages if source == place]
    return [source for source, target in messages if target == place], parents[0] if parents else None


def decode(case, place, levels, keys):
    """levels: 2 within the CUBE, then 1 across CUBEs."""
    state = yield from sweep(case, keys)
    arrived, new = state_of(case.rows, case.d), state_of(case.rows, case.d)
    for level in levels:
        children, parent = family(case.reduce[2 - level], place[level])
        at = lambda number: (*place[:level], number, *place[level + 1:])
        for child in children:
            for x in arrived:
                yield recv(at(child), x)
            state, new = yield from merge(state, arrived, new)
        if parent is not None:
            for x in state:
                yield send(at(parent), x)
            return
    yield from closing(state)


def short_decode(case, place, keys):
    for _ in range(min(case.kv_per_cube, case.kv_heads)):
        yield from decode(case, place, [2], keys)
        yield WAIT_ALL


def fan_out(case, ring, root, keys):
    state, new = (yield from sweep(case, keys)), state_of(case.rows, case.d)
    have, buffers = state, [state_of(case.rows, case.d) for _ in range(2)]
    for step in range(1, ring.size):
        receives = []
        for x in buffers[step % 2]:
            receives.append((yield recv_async(ring.before, x)))
        for x in have:
            yield send(ring.next, x)
        for receive in receives:
            yield wait(receive)
        have = buffers[step % 2]
        state, new = yield from merge(state, have, new)
    if root:
        yield from closing(state)


def all_reduce(case, place):
    sip, cube, pe = place
    children, parent = family(case.reduce[1], cube)
    rows, d, sips = case.rows, case.d, case.chip["sips"]
    x = yield load(Tensor(rows, d, 2))
    y = yield math(x, (yield fill(rows)), out=Tensor(rows, d))
    for child in children:
        o = yield recv((sip, child, pe), Tensor(rows, d))
        y = yield math(y, o)
    if parent is not None:
        yield send((sip, parent, pe), y)
        y = yield recv((sip, parent, pe), Tensor(rows, d))
    elif sips > 1:
        parts, at = {sip: y}, sip
        for _ in range(sips - 1):
            receive = yield recv_async(((sip - 1) % sips, cube, pe), Tensor(rows, d))
            yield send(((sip + 1) % sips, cube, pe), parts[at])
            at = (at - 1) % sips
            yield wait(receive)
            parts[at] = Tensor(rows, d)
        y = parts[0]
        for i in range(1, sips):
            y = yield math(y, parts[i])
    for child in reversed(children):
        yield send((sip, child, pe), y)
    yield store(y)


# ---- Kernels of prefill


def fold(q, heads, at, n, first, tile, state, new):
    """Queries [at, at + n) of so many heads with a tile of keys from `first` on."""
    s = yield product(q, None, tile)
    if first + tile > at:
        mask = yield fill(n, tile)
        if heads > 1:
            mask = yield math(mask, out=Tensor(heads * n, tile))
        yield math(s, mask, out=s)
    return (yield from absorb(s, None, state, new, True))


def end(state):
    yield from closing(state)
    yield WAIT_ALL


def prefill(case):
    """On one PE."""
    block = case.query_rows // case.rows
    for at in range(case.query_begin, case.query_end, block):
        n = min(block, case.query_end - at)
        rows = case.rows * n
        q = yield load(Tensor(rows, case.d, 2))
        state, new = (yield from begin(rows, case.d)), (Tensor(rows), None, None)
        for first in range(0, min(case.context, at + n), case.tile):
            width = min(case.tile, case.context - first)
            state, new = yield from fold(q, case.rows, at, n, first, width, state, new)
        yield from end(state)


def ring_of(order, place, blocks=None):
    """A ring of places, as that one sees it. blocks: of keys, that its positions have at first."""
    i, size = order.index(place), len(order)
    return types.SimpleNamespace(size=size, position=i, before=order[i - 1], next=order[(i + 1) % size], blocks=blocks)


def block_at(ring, step):
    return ring.blocks[(ring.position - step) % ring.size]


class Rings:
    """On many PEs. chunk: of so many positions. sharing: the ring whose places share a chunk's tiles of queries."""

    def __init__(self, case, heads, chunk, skip, cubes, pes, sharing):
        self.case, self.heads, self.chunk, self.skip = case, heads, chunk, skip
        self.cubes, self.pes, self.sharing = cubes, pes, sharing
        self.keys = region_keys(case, cubes.size * pes.size)
        self.from_cubes, self.from_pes = ([self.region() for _ in range(2)] for _ in range(2))

    def region(self):
        return [Region(self.keys, self.case.d, 2) for _ in range(2)]  # K, V

    def program(self, turns):
        n, last = self.case.query_rows // self.heads, self.case.query_end
        for _ in range(turns):
            at = self.case.query_begin
            while at < last:
                number = at // self.chunk
                end_of_chunk = min((number + 1) * self.chunk, last)
                starts = range(at + self.sharing.position * n, end_of_chunk, self.sharing.size * n)
                yield from self.run_chunk([(start, min(n, end_of_chunk - start)) for start in starts], number)
                at = end_of_chunk

    def around(self, ring, own, turns, work):
        """What a place has goes round the ring; work(what is here, step) at each step."""
        have = own
        for step in range(ring.size):
            receives = []
            if step + 1 < ring.size:
                following = turns[(step + 1) % 2]
                for x in following:
                    receives.append((yield recv_async(ring.before, x)))
                for x in have:
                    yield send(ring.next, x)
            yield from work(have, step)
            for receive in receives:
                yield wait(receive)
            if receives:
                have = following

    def run_chunk(self, tiles, number):
        self.fresh = True

        def work(have, step):
            block = block_at(self.cubes, step)
            if block <= number or not self.skip:
                yield from self.around(self.pes, have, self.from_pes, lambda _, step: self.meet(tiles, block, step))

        yield from self.around(self.cubes, self.region(), self.from_cubes, work)
        for _, n in tiles:
            state = yield from self.load_state(self.heads * n)
            yield from end(state)
        yield WAIT_ALL

    def meet(self, tiles, block, step):
        """The queries and the region that is here at this step of the spread."""
        first = (block * self.pes.size + block_at(self.pes, step)) * self.keys
        fresh, self.fresh = self.fresh, False
        for at, n in tiles:
            if fresh or not self.skip or first < at + n:
                yield from self.fold_region(at, n, first, fresh)

    def load_state(self, rows):
        state = state_of(rows, self.case.d)
        for x in state:
            yield load(x)
        return state

    def fold_region(self, at, n, region, fresh):
        rows, d, tile = self.heads * n, self.case.d, self.case.tile
        q = yield load(Tensor(rows, d, 2))
        state, new = (yield from begin(rows, d) if fresh else self.load_state(rows)), (Tensor(rows), None, None)
        for first in range(region, region + self.keys, tile):
            if self.skip and first >= at + n:
                break
            state, new = yield from fold(q, self.heads, at, n, first, tile, state, new)
        for x in state:
            yield store(x)
        yield WAIT_ALL


def region_keys(case, ranks):
    return -(-case.max_context // (ranks * case.tile)) * case.tile


# ---- Launches


def programs_of(case):
    """By place (sip, cube, pe). Groups, and PE numbers of an all-reduce, that are alike stand for each other."""
    kernel, pes, cubes, (pe_ring, cube_ring) = case.kernel, case.pes, case.cubes, case.rings
    ranks = {(0, cube, pe): cube * pes + pe for cube in range(cubes) for pe in range(pes)}
    one_cube = {place: rank for place, rank in ranks.items() if rank < pes}
    snake = [(0, cube, pe) for i, cube in enumerate(cube_ring) for pe in (pe_ring if i % 2 == 0 else pe_ring[::-1])]

    if kernel in ("decode", "blocking-dot"):
        return {place: decode(case, place, [2, 1], keys_of(case, len(ranks), rank)) for place, rank in ranks.items()}
    if kernel == "decode-short":
        return {place: short_decode(case, place, keys_of(case, pes, rank)) for place, rank in one_cube.items()}
    if kernel == "fan-out":
        return {place: fan_out(case, ring_of(snake, place), rank == 0, keys_of(case, len(ranks), rank))
                for place, rank in ranks.items()}
    if kernel == "allreduce":
        places = [(sip, cube, 0) for sip in range(case.chip["sips"]) for cube in range(cubes)]
        return {place: all_reduce(case, place) for place in places}
    if kernel == "kv-fan-out":
        chunk = region_keys(case, len(ranks)) * len(ranks)
        all_ranks = {place: ring_of(snake, place, [ranks[other] for other in snake]) for place in ranks}
        return {place: Rings(case, 1, chunk, False, ring, ring_of([place], place, [0]), ring).program(case.rows)
                for place, ring in all_ranks.items()}
    if kernel == "prefill" and len(ranks) == 1:
        return {(0, 0, 0): prefill(case)}

    def rings(place, cubes_of_ring, heads):
        sip, cube, pe = place
        around_pes = ring_of([(sip, cube, other) for other in pe_ring], place, pe_ring)
        around_cubes = ring_of([(sip, other, pe) for other in cubes_of_ring], place, cubes_of_ring)
        chunk = region_keys(case, len(cubes_of_ring) * pes) * pes
        return Rings(case, heads, chunk, True, around_cubes, around_pes, around_pes)

    if kernel == "prefill-short":
        turns = min(case.kv_per_cube, case.kv_heads)
        return {place: rings(place, [0], case.rows).program(turns) for place in one_cube}
    return {place: rings(place, cube_ring, 1 if cubes > 1 else case.rows).program(1) for place in ranks}


def launches(case):
    if case.kernel in ("decode-short", "prefill-short", "allreduce"):
        return 1
    return -(-case.kv_heads // (case.groups * case.chip["sips"]))


def solve(case):
    network = Network(case.chip, *case.meshes)
    overtaking = case.variant == "opt2" and case.kernel in ("decode", "decode-short", "fan-out")
    programs = {Pe(network, place, overtaking): program for place, program in programs_of(case).items()}
    return launches(case) * run_all(programs)


def main():
    with open(sys.argv[1]) as cases:
        for line in cases:
            print(solve(types.SimpleNamespace(**json.loads(line))))


if __name__ == "__main__":
    main()
