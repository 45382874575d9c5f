"""The rules of docs/simulator-model.md: operations, the engines of a PE, messages. For sim_max_plus.py.

A PE performs a program of operations: its CPU waits by the rules, takes the issue's cycles, and hands jobs to engines.
An end is None as long as nobody can say it. Left out is the rule on bytes that a scope recycled: in none of the kernels
is anything under way in those that another operation would have to wait for.
"""
import collections

# ---- Operations


class Tensor:
    """What made it, and who uses it: the last one on each engine, which ends last."""
    __slots__ = "rows", "columns", "elements", "size", "maker", "made", "users"

    def __init__(self, rows, columns=1, width=4):
        self.rows, self.columns, self.elements, self.size = rows, columns, rows * columns, rows * columns * width
        self.maker, self.made, self.users = None, None, {}


class Region(Tensor):
    """Bytes in HBM, for messages."""


Op = collections.namedtuple("Op", "what reads outs more", defaults=((), (), None))


def math(*reads, out=None, exp=False):
    return Op("math", reads, [out or Tensor(reads[0].rows, reads[0].columns)], exp)


def fill(rows, columns=1):
    return math(out=Tensor(rows, columns))


def load(out):
    return Op("load", (), [out])


def store(x):
    return Op("store", [x])


def product(a, b, columns, out=None, what="composite"):
    """b: a tensor, or None for one in HBM."""
    return Op(what, [a, b] if b else [a], [out or Tensor(a.rows, columns)], b is None)


def softmax_pv(s, state):
    return Op("ex_composite", [s], state)


def send(to, x):
    return Op("send", [x], (), to)


def recv(source, out):
    return Op("recv", (), [out], source)


def recv_async(source, out):
    return Op("recv_async", (), [out], source)


def wait(receive):
    return Op("wait", more=receive)


WAIT_ALL = Op("wait_all")

# ---- Engines


class Job:
    """Something on an engine. `after`: what must have ended; `seen`: not before this time; `work`: ticks, or bytes."""
    __slots__ = "number", "seen", "after", "work", "start", "end"

    def __init__(self, number, seen, after, work):
        self.number, self.seen, self.after, self.work, self.start, self.end = number, seen, after, work, None, None

    def ready(self):
        ready = self.seen
        for job in self.after:
            if job.end is None:
                return None
            if job.end > ready:
                ready = job.end
        return ready


class Drained:
    """The end of a composite: of its last step, and the drain."""

    def __init__(self, step, drain):
        self.step, self.drain = step, drain

    @property
    def end(self):
        return None if self.step.end is None else self.step.end + self.drain


class Engine:
    """Queues of jobs, only whose heads are looked at. run(engine, job, start) and rank(queue, job): see Pe."""

    def __init__(self, queues, run, rank):
        self.queues, self.run, self.rank, self.free = [collections.deque() for _ in range(queues)], run, rank, 0

    def moment(self):
        ready = [r for queue in self.queues if queue and (r := queue[0].ready()) is not None]
        return max(self.free, min(ready)) if ready else None

    def take(self, now):
        heads = [(self.rank(i, queue[0]), i) for i, queue in enumerate(self.queues)
                 if queue and (r := queue[0].ready()) is not None and r <= now]
        return self.queues[min(heads)[1]].popleft()


# ---- Messages


class Message:
    """One that was sent (its end: its last slot has left), or a receive (its last slot is taken)."""

    def __init__(self, channel, time, size=0):
        self.channel, self.time, self.size, self.end = channel, time, size, None


class Channel:
    """Of a pair of sender and receiver."""

    def __init__(self, gb_s, hop, port):
        self.gb_s, self.hop, self.port = gb_s, hop, port
        self.arrivals, self.posts, self.taken, self.sent = collections.deque(), collections.deque(), [], 0

    def send(self, message):
        self.port.queue.append(message)
        self.port.go_on()

    def post(self, receive):
        self.posts.append(receive)
        self.match()
        self.port.go_on()

    def match(self):
        while self.arrivals and self.posts:
            arrival, last = self.arrivals.popleft()
            self.taken.append(max(arrival, self.posts[0].time))
            if last:
                self.posts.popleft().end = self.taken[-1]


class Port:
    """Of a PE, a kind of link and a direction: sends slots one at a time, as far as their credits are known."""

    def __init__(self, chip):
        self.slot, self.slots, self.packet = (chip["ipcq." + key] for key in ("slot_bytes", "slots", "packet_bytes"))
        self.queue, self.free = collections.deque(), 0

    def go_on(self):
        while self.queue:
            message = self.queue[0]
            channel = message.channel
            credit, before = 0, channel.sent - self.slots
            if before >= len(channel.taken):
                return
            if before >= 0:
                credit = channel.taken[before] + channel.hop
            slot = min(self.slot, message.size)
            packets = (min(self.packet, slot - at) for at in range(0, slot, self.packet))
            self.free = max(self.free, message.time, credit) + sum(-(-size * 1000 // channel.gb_s) for size in packets)
            message.size -= slot
            channel.sent += 1
            channel.arrivals.append((self.free + channel.hop, message.size == 0))
            if message.size == 0:
                self.queue.popleft().end = self.free
            channel.match()


class Network:
    """Between places (sip, cube, pe), the CUBEs of a group by their place in it."""

    def __init__(self, chip, pes, cubes):
        self.chip, self.columns = chip, (None, cubes[1], pes[1])
        self.ports, self.channels = collections.defaultdict(lambda: Port(chip)), {}

    def channel(self, source, target):
        if (source, target) not in self.channels:
            level = next(i for i in range(3) if source[i] != target[i])
            kind, hops, direction = ("sip", "cube", "pe")[level], 1, None
            if level > 0:
                (y, x), (to_y, to_x) = (divmod(place[level], self.columns[level]) for place in (source, target))
                hops, direction = abs(to_x - x) + abs(to_y - y), ("x", to_x > x) if to_x != x else ("y", to_y > y)
            gb_s, hop = self.chip[f"ipcq.{kind}.gb_s"], hops * self.chip[f"ipcq.{kind}.hop_ps"]
            self.channels[source, target] = Channel(gb_s, hop, self.ports[source, kind, direction])
        return self.channels[source, target]


# ---- A PE


class Pe:
    """overtaking: jobs may run before others that were issued earlier (softmax_pv). Else an engine is a queue, and what
    is issued has its times at once."""

    def __init__(self, network, place, overtaking):
        self.chip, self.network, self.place, self.overtaking = network.chip, network, place, overtaking
        self.t = self.number = 0
        self.math = Engine(3, self.run_plain, lambda _, job: job.number)  # of the CPU, accumulator steps, softmax steps
        self.gemm = Engine(2, self.run_plain, lambda _, job: job.number)  # of composites, of softmax_pv
        self.dma = Engine(2, self.run_requests, lambda queue, job: (queue, job.number))
        self.engines = (self.math, self.gemm, self.dma)
        self.request_ends = self.window("pe.dma.reads_in_flight")
        self.math_jobs = self.window("pe.math.queue_depth")
        self.fetched = self.window("pe.dma.stages"), self.window("pe.dma.stages")  # steps
        self.composites, self.pvs = [], []
        self.last = {}  # by engine

    def window(self, key):
        """The last so many of something."""
        return collections.deque(maxlen=self.chip[key])

    def cycles(self, n):
        return n * self.chip["pe.ps_per_cycle"]

    def math_ticks(self, elements, exp=False):
        lanes = elements * (self.chip["pe.math.exp_cost"] if exp else 1)
        return self.cycles(self.chip["pe.math.fill_cycles"] + -(-lanes // self.chip["pe.math.lanes"]))

    # Engines

    def put(self, engine, queue, job):
        if self.overtaking:
            engine.queues[queue].append(job)
        else:
            engine.run(engine, job, max(engine.free, job.ready()))
        return job

    def run_until(self, condition):
        """Lets engines work until `condition` (of the CPU) gives a time that comes before anything of theirs."""
        while self.overtaking:
            at = condition()
            moments = [(m, i) for i, engine in enumerate(self.engines) if (m := engine.moment()) is not None]
            if not moments or at is not None and max(at, self.t) <= min(moments)[0]:
                break
            now, which = min(moments)
            engine = self.engines[which]
            engine.run(engine, engine.take(now), now)
        return condition()

    def run_plain(self, engine, job, start):
        job.start, job.end = start, start + job.work
        engine.free = job.end

    def run_requests(self, engine, job, start):
        request, gb_s, latency = (self.chip["pe.dma." + key] for key in ("request_bytes", "hbm_gb_s", "latency_ps"))
        ends, whole = self.request_ends, -(-request * 1000 // gb_s)
        for left in range(job.work, 0, -request):
            start += whole if left >= request else -(-left * 1000 // gb_s)
            ends.append(start + latency)
            if len(ends) == ends.maxlen and ends[0] > start:
                engine.free = ends[0]
            else:
                engine.free = start
            job.end, start = ends[-1], engine.free

    # CPU

    def run(self, program):
        """Performs the program; yields what it waits for where only another PE can say when that ends."""
        result = None
        try:
            while True:
                op = program.send(result)
                while thing := self.reach(self.needs(op)):
                    yield thing
                if op.what == "recv":
                    receive = self.post(op)
                    while thing := self.reach([receive]):
                        yield thing
                result = self.perform(op)
        except StopIteration:
            while thing := self.reach(self.last.values()):
                yield thing

    def reach(self, things):
        """The clock goes to the ends of all of them. Returns one that only another PE can say."""
        for thing in things:
            if self.overtaking:
                self.run_until(lambda: thing.end)
            end = thing.end
            if end is None:
                return thing
            if end > self.t:
                self.t = end
        return None

    def needs(self, op):
        """What the rules on operands and on the output's bytes say."""
        if op.what == "wait":
            return [op.more]
        if op.what == "wait_all":
            return [thing for engine, thing in self.last.items() if not (isinstance(engine, tuple) and engine[1])]
        math, softmax_pv = op.what == "math", op.what == "ex_composite"
        things = [x.made for x in op.reads if x.made and not (math and x.maker == "math") and not softmax_pv]
        for out in op.outs:
            if not (softmax_pv and out.maker == "ex_composite"):
                things += [thing for engine, thing in out.users.items() if not (math and engine == "math")]
        return things

    def perform(self, op):
        what = op.what
        if what in ("wait", "wait_all"):
            return None
        if what == "math" and len(self.math_jobs) == self.math_jobs.maxlen:
            self.t = max(self.t, self.run_until(lambda: self.math_jobs[0].start))
        if what in ("composite", "ex_composite", "dot"):
            self.t = max(self.t, self.run_until(self.room))
        self.t += self.cycles(self.chip["pe.issue." + what.removesuffix("_async")])
        self.number += 1
        if what == "recv_async":
            return self.post(op)
        if what != "recv":
            thing = self.hand_over(op)
            if what == "dot" or what == "math" and self.chip["pe.math.blocking"]:
                self.reach([thing])
        return op.outs[0] if op.outs else None

    def room(self):
        """When fewer composites than may be are under way."""
        self.composites = [one for one in self.composites if one.end is None or one.end > self.t]
        known = sorted((one.end for one in self.composites if one.end is not None), reverse=True)
        # So many may be under way besides those that have no end yet.
        may = self.chip["pe.gemm.composite_depth"] - 1 - (len(self.composites) - len(known))
        return None if may < 0 else known[may] if len(known) > may else 0

    def post(self, op):
        channel = self.network.channel(op.more, self.place)
        receive = Message(channel, self.t)
        channel.post(receive)
        return receive

    def hand_over(self, op):
        if op.what == "math":
            elements = max(x.elements for x in (*op.reads, *op.outs))
            job = self.put(self.math, 0, Job(self.number, self.t, (), self.math_ticks(elements, op.more)))
            self.math_jobs.append(job)
            return self.use("math", job, op.reads, op.outs)
        if op.what in ("load", "store"):
            job = self.put(self.dma, 0, Job(self.number, self.t, (), (*op.reads, *op.outs)[0].size))
            return self.use("dma", job, op.reads, op.outs)
        if op.what == "send":
            channel, x = self.network.channel(self.place, op.more), op.reads[0]
            message = Message(channel, self.t, x.size)
            channel.send(message)
            return self.use((channel.port, isinstance(x, Region)), message, op.reads)
        if op.what == "ex_composite":
            return self.add_softmax_pv(op.reads[0], op.outs)
        product = self.add_steps(0, op.reads[0], op.outs[0].columns, op.more, ())
        self.composites.append(product)
        return self.use("gemm", product, op.reads, op.outs)

    def use(self, engine, thing, reads, outs=()):
        for x in reads:
            x.users[engine] = thing
        for out in outs:
            out.users[engine], out.made, out.maker = thing, thing, engine
        self.last[engine] = thing
        return thing

    def add_steps(self, queue, a, columns, in_hbm, after):
        """The steps of a product, with their fetches; returns the last one, drained."""
        tile_k, tile_n = self.chip["pe.gemm.tile_k"], self.chip["pe.gemm.tile_n"]
        ticks = -(-a.rows // self.chip["pe.gemm.tile_m"]) * self.cycles(self.chip["pe.gemm.subtile_cycles"])
        fill, fetched = self.cycles(self.chip["pe.gemm.fill_cycles"]), self.fetched[queue]
        for n in range(0, columns, tile_n):
            for k in range(0, a.columns, tile_k):
                step = Job(self.number, self.t, after, ticks + fill)
                fill = 0
                if in_hbm:
                    before = (fetched[0],) if len(fetched) == fetched.maxlen else ()
                    size = 2 * min(tile_k, a.columns - k) * min(tile_n, columns - n)
                    step.after = (*after, self.put(self.dma, queue, Job(self.number, self.t, before, size)))
                    fetched.append(step)
                self.put(self.gemm, queue, step)
        return Drained(step, self.cycles(self.chip["pe.gemm.drain_cycles"]))

    def add_softmax_pv(self, s, state):
        m, _, o = state
        parts = [(s, 0), (m, 0), (s, 0), (s, 1), (m, 0), (m, 1), (s, 0), (m, 0), (m, 0)]
        after = [s.made] + [softmax for softmax, _ in self.pvs[-1:]] + [last for _, last in self.pvs[-2:-1]]
        ticks = sum(self.math_ticks(x.elements, exp) for x, exp in parts)
        softmax = self.put(self.math, 2, Job(self.number, self.t, after, ticks))
        product = self.add_steps(1, s, o.columns, True, (softmax,))
        self.pvs.append((softmax, product.step))
        ticks = 2 * self.math_ticks(o.elements)
        accumulation = self.put(self.math, 1, Job(self.number, self.t, (product,), ticks))
        self.composites.append(accumulation)
        self.use("softmax", softmax, [s])
        return self.use("ex_composite", accumulation, (), state)


def run_all(programs):
    """By Pe: to the end of all of them. Returns the largest clock."""
    blocked = [(pe.run(program), None) for pe, program in programs.items()]
    while blocked:
        ready = [run for run, thing in blocked if thing is None or thing.end is not None]
        assert ready, "all wait for each other"
        blocked = [(run, thing) for run, thing in blocked if thing is not None and thing.end is None]
        for run in ready:
            if thing := next(run, None):
                blocked.append((run, thing))
    return max(pe.t for pe in programs)
