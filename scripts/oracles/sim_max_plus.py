#!/usr/bin/env python3
"""The time of the decode kernels by the rules of docs/simulator-model.md alone: a second implementation, for the tests.

    sim_max_plus.py CASES     prints the ticks of each case, one a line

CASES has one JSON object a line: "chip" (the values of sim::Chip by their keys; contention is taken as false), "kernel"
(opt1, opt3, opt3v or opt2), "context", "max_context", "tile", "rows" (G), "d", "pes", "cubes", and "reduce": for each
level, PEs and then CUBEs, {"root": place, "children": [[from, to, hops], ...]} in the order in which each receives.

Each engine of a PE takes jobs; a job is ready when all that it names has ended. The CPU is one more: its operations wait,
take their issue cycles, and hand jobs to engines. Whatever has the earliest next moment goes next.
"""
import functools
import json
import sys


class Job:
    """Something on an engine. `after`: what must have ended; `seen`: not before this time."""

    def __init__(self, number, seen, after=(), duration=0, size=0, drain=0):
        self.number, self.seen, self.after, self.duration, self.size = number, seen, after, duration, size
        self.drain = drain  # a composite's last step: its result is there so much after its end
        self.start = self.end = None

    def ready(self):
        ends = [job.end for job in self.after]
        return None if None in ends else max([self.seen] + ends)


class Result:
    """The end of a composite: of its last step, and the drain."""

    def __init__(self, step):
        self.step = step

    @property
    def end(self):
        return None if self.step.end is None else self.step.end + self.step.drain


class Engine:
    """Queues of jobs; only heads are looked at."""

    def __init__(self, queues):
        self.queues = [[] for _ in range(queues)]
        self.heads = [0] * queues
        self.free = 0

    def moment(self):
        ready = [r for q, h in zip(self.queues, self.heads) if h < len(q) and (r := q[h].ready()) is not None]
        return max(self.free, min(ready)) if ready else None

    def take(self, now, rank):
        heads = [(rank(i, q[h]), i) for i, (q, h) in enumerate(zip(self.queues, self.heads))
                 if h < len(q) and (r := q[h].ready()) is not None and r <= now]
        i = min(heads)[1]
        self.heads[i] += 1
        return self.queues[i][self.heads[i] - 1]


class Pe:
    def __init__(self, chip):
        self.chip, self.t, self.number = chip, 0, 0
        self.math, self.gemm, self.dma = Engine(3), Engine(2), Engine(2)  # MATH: CPU, accumulator, softmax
        self.request_starts, self.request_ends, self.free_port = [], [], 0
        self.math_jobs, self.composites, self.everything = [], [], []
        self.steps = {0: [], 1: []}  # fetched, of composites and of softmax_pv
        self.pvs, self.sent = [], []

    def cycles(self, n):
        return n * self.chip["pe.ps_per_cycle"]

    def transfer(self, size):
        return -(-size * 1000 // self.chip["pe.dma.hbm_gb_s"])

    def work(self, elements, cost=1):
        return self.cycles(self.chip["pe.math.fill_cycles"] + -(-elements * cost // self.chip["pe.math.lanes"]))

    # Engines

    def run_until(self, condition):
        """Lets engines work until `condition` (of the CPU) gives a time that comes before anything of theirs."""
        while True:
            at = condition()
            moments = [(m, i) for i, engine in enumerate((self.math, self.gemm, self.dma))
                       if (m := engine.moment()) is not None]
            if at is not None and (not moments or at <= min(moments)[0]):
                return at
            now, which = min(moments)
            (self.run_math, self.run_gemm, self.run_dma)[which](now)

    def run_math(self, now):
        self.run_plain(self.math, now)

    def run_gemm(self, now):
        self.run_plain(self.gemm, now)

    def run_plain(self, engine, now):
        job = engine.take(now, lambda _, job: job.number)
        job.start, job.end = now, now + job.duration
        engine.free = job.end

    def run_dma(self, now):
        job = self.dma.take(now, lambda queue, job: (queue, job.number))
        left, ready = job.size, job.ready()
        while left > 0:
            size = min(left, self.chip["pe.dma.request_bytes"])
            start = max(ready, self.dma_free())
            job.start = start if job.start is None else job.start
            self.free_port = start + self.transfer(size)
            self.request_ends.append(self.free_port + self.chip["pe.dma.latency_ps"])
            left -= size
        job.end = self.request_ends[-1]
        self.dma.free = self.dma_free()

    def dma_free(self):
        depth = self.chip["pe.dma.reads_in_flight"]
        return max(self.free_port, self.request_ends[-depth] if len(self.request_ends) >= depth else 0)

    # CPU

    def wait_for(self, things):
        def condition():
            ends = [thing.end for thing in things]
            return None if None in ends else max([self.t] + ends)
        self.t = self.run_until(condition)

    def issue(self, what):
        self.t += self.cycles(self.chip["pe.issue." + what])
        self.number += 1

    def math_op(self, elements, cost=1, operands=()):
        self.wait_for(operands)
        depth = self.chip["pe.math.queue_depth"]
        if len(self.math_jobs) >= depth:
            before = self.math_jobs[-depth]
            self.t = self.run_until(lambda: None if before.start is None else max(self.t, before.start))
        self.issue("math")
        job = Job(self.number, self.t, duration=self.work(elements, cost))
        self.math.queues[0].append(job)
        self.math_jobs.append(job)
        self.everything.append(job)
        if self.chip["pe.math.blocking"]:
            self.wait_for([job])
        return job

    def move(self, what, size, operands=()):
        self.wait_for(operands)
        self.issue(what)
        job = Job(self.number, self.t, size=size)
        self.dma.queues[0].append(job)
        self.everything.append(job)
        return job

    def room(self):
        depth = self.chip["pe.gemm.composite_depth"]

        def condition():
            ends = [thing.end for thing in self.composites]
            known = sorted((end for end in ends if end is not None and end > self.t), reverse=True)
            may = depth - 1 - ends.count(None)  # so many may be under way besides those that have no end yet
            if may < 0:
                return None
            return self.t if len(known) <= may else known[may]
        self.t = self.run_until(condition)

    def add_steps(self, queue, m, k, n, in_hbm, after):
        """The steps of [m x k] times [k x n], with their fetches; returns them."""
        tile_k, tile_n = self.chip["pe.gemm.tile_k"], self.chip["pe.gemm.tile_n"]
        duration = -(-m // self.chip["pe.gemm.tile_m"]) * self.cycles(self.chip["pe.gemm.subtile_cycles"])
        made, stages = [], self.chip["pe.dma.stages"]
        for column in range(0, n, tile_n):
            for row in range(0, k, tile_k):
                step = Job(self.number, self.t, list(after), duration, drain=self.cycles(self.chip["pe.gemm.drain_cycles"]))
                if not made:
                    step.duration += self.cycles(self.chip["pe.gemm.fill_cycles"])
                if in_hbm:
                    fetched = self.steps[queue]
                    before = [fetched[-stages]] if len(fetched) >= stages else []
                    fetch = Job(self.number, self.t, before, size=2 * min(tile_k, k - row) * min(tile_n, n - column))
                    self.dma.queues[queue].append(fetch)
                    step.after.append(fetch)
                    fetched.append(step)
                self.gemm.queues[queue].append(step)
                made.append(step)
        return made

    def composite(self, m, k, n, operands, in_hbm=True, reused=()):
        self.wait_for([*operands, *reused])
        self.room()
        self.issue("composite")
        result = Result(self.add_steps(0, m, k, n, in_hbm, [])[-1])
        self.composites.append(result)
        self.everything.append(result)
        return result

    def softmax_pv(self, m, t, n, scores, made_by_math):
        self.wait_for(made_by_math)  # the accumulator is an output: what MATH still writes there
        self.room()
        self.issue("ex_composite")
        exp = self.chip["pe.math.exp_cost"]
        parts = [(m * t, 1), (m, 1), (m * t, 1), (m * t, exp), (m, 1), (m, exp), (m * t, 1), (m, 1), (m, 1)]
        after = [scores] + [pv["softmax"] for pv in self.pvs[-1:]]
        if len(self.pvs) >= 2:
            after.append(self.pvs[-2]["last"])
        softmax = Job(self.number, self.t, after, sum(self.work(*part) for part in parts))
        self.math.queues[2].append(softmax)
        last = self.add_steps(1, m, t, n, True, [softmax])[-1]
        update = Job(self.number, self.t, [Result(last)], 2 * self.work(m * n))
        self.math.queues[1].append(update)
        self.pvs.append({"softmax": softmax, "last": last})
        self.composites.append(update)
        self.everything.append(update)
        return softmax, update

    def send(self, size, operand):
        self.wait_for([operand])
        self.issue("send")
        self.sent.append((size, self.t))

    def receive(self, message):
        self.t = message(self.t)
        self.issue("recv")


def sweep(pe, case, keys):
    """The tiles of a rank with so many keys; returns the operations that made m, l and O."""
    g, d, tile = case["rows"], case["d"], case["tile"]
    exp = pe.chip["pe.math.exp_cost"]
    q = pe.move("load", 2 * g * d)
    m, l, o = pe.math_op(g), pe.math_op(g), pe.math_op(g * d)
    lengths = [min(tile, keys - start) for start in range(0, keys, tile)]
    kernel = case["kernel"]

    def softmax(t, s):
        pe.math_op(g * t, operands=[s])
        new_m = pe.math_op(g)
        pe.math_op(g * t)
        p = pe.math_op(g * t, exp)
        pe.math_op(g)
        pe.math_op(g, exp)
        pe.math_op(g * t)
        pe.math_op(g)
        return p, new_m, pe.math_op(g)

    def update(u):
        pe.math_op(g * d)
        return pe.math_op(g * d, operands=[u])

    def scores(t, reused=()):
        return pe.composite(g, d, t, [q], reused=reused)

    if kernel == "opt1":
        for t in lengths:
            p, m, l = softmax(t, scores(t))
            o = update(pe.composite(g, t, d, [p]))
    elif kernel in ("opt3", "opt3v"):
        ahead = kernel == "opt3v"
        prepare = lambda t: (scores(t), pe.move("load", 2 * t * d) if ahead else None)
        following = prepare(lengths[0]) if lengths else None
        for j, t in enumerate(lengths):
            (s, w), following = following, prepare(lengths[j + 1]) if j + 1 < len(lengths) else None
            p, m, l = softmax(t, s)
            o = update(pe.composite(g, t, d, [p, w] if ahead else [p], in_hbm=not ahead))
    elif lengths:  # opt2
        steps = []
        for j, t in enumerate(lengths):
            own = t < lengths[0]  # a short last tile has a buffer of its own
            s = scores(t, reused=steps[j - 2:j - 1] if j >= 2 and not own else ())
            softmax_step, o = pe.softmax_pv(g, t, d, s, [m, l, o] if j == 0 else [])
            steps.append(softmax_step)
        pe.wait_for(pe.everything)
        m = l = o
    return m, l, o


def solve(case):
    chip = case["chip"]
    g, d, pes, cubes = case["rows"], case["d"], case["pes"], case["cubes"]
    block = -(-case["max_context"] // (pes * cubes))
    keys_of = lambda rank: max(0, min(block, case["context"] - rank * block))
    exp = chip["pe.math.exp_cost"]
    levels = [("pe", case["reduce"][0]), ("cube", case["reduce"][1])]

    def children(level, place):
        return [(source, hops) for source, target, hops in levels[level][1]["children"] if target == place]

    def key_of(cube, pe, level):
        """All that the time of a PE depends on, up to what it sends at `level`."""
        below = tuple((key_of(cube, source, 0), hops) for source, hops in children(0, pe))
        above = ()
        if level == 1:
            above = tuple((key_of(source, pe, 1), hops) for source, hops in children(1, cube))
        is_root = level == 1 and cube == levels[1][1]["root"]
        return keys_of(cube * pes + pe), below, above, is_root

    @functools.lru_cache(maxsize=None)
    def run(key):
        """(the end of all that the PE and those below it do, its messages as (bytes, seen))."""
        keys, below, above, is_root = key
        pe, end = Pe(chip), 0
        m, l, o = sweep(pe, case, keys)
        buffers = [None, None, None]  # what last read m2, l2 and O2
        for kind, group in (("pe", below), ("cube", above)):
            for child, hops in group:
                child_end, messages = run(child)
                end = max(end, child_end)
                take = receiver(kind, hops)
                for i, message in enumerate(messages):
                    if buffers[i] is not None:
                        pe.wait_for([buffers[i]])
                    pe.receive(lambda posted: take(message, posted))
                new_m = pe.math_op(g)
                pe.math_op(g)
                pe.math_op(g, exp)
                buffers[0] = pe.math_op(g)
                pe.math_op(g, exp)
                pe.math_op(g)
                buffers[1] = pe.math_op(g)
                l = pe.math_op(g)
                pe.math_op(g * d)
                buffers[2] = pe.math_op(g * d)
                m, o = new_m, pe.math_op(g * d)
        if is_root:
            pe.move("store", 2 * g * d, [pe.math_op(g * d)])
        else:
            for size, operand in ((4 * g, m), (4 * g, l), (4 * g * d, o)):
                pe.send(size, operand)
        pe.wait_for(pe.everything)
        return max(end, pe.t), tuple(pe.sent)

    def receiver(kind, hops):
        """Slots of one pair: (message, time of the post) -> the time at which its last slot is taken."""
        gb_s, hop = chip[f"ipcq.{kind}.gb_s"], hops * chip[f"ipcq.{kind}.hop_ps"]
        state, taken = {"port": 0}, []

        def cut(size, part):
            return [min(part, size - at) for at in range(0, size, part)]

        def take(message, posted):
            size, seen = message
            for slot in cut(size, chip["ipcq.slot_bytes"]):
                credit = taken[-chip["ipcq.slots"]] + hop if len(taken) >= chip["ipcq.slots"] else 0
                start = max(state["port"], seen, credit)
                state["port"] = start + sum(-(-packet * 1000 // gb_s) for packet in cut(slot, chip["ipcq.packet_bytes"]))
                taken.append(max(state["port"] + hop, posted))
            return taken[-1]
        return take

    return run(key_of(levels[1][1]["root"], levels[0][1]["root"], 1))[0]


def main():
    with open(sys.argv[1]) as cases:
        for line in cases:
            print(solve(json.loads(line)))


if __name__ == "__main__":
    main()
