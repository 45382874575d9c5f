"""PyTorch's one-shot all-reduce over symmetric memory, beside allreduce_bench: two or more processes, bf16, a CUDA
graph of 50 calls, the slowest rank, the median of seven replays.

    python3 bench/torch_one_shot.py [ranks]
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric_memory
import torch.multiprocessing as processes

KIB = [4, 8, 16, 32, 64, 80, 128, 256, 512, 1024, 1280, 2048]
CALLS, REPLAYS = 50, 7


def microseconds(rank, kib):
    elements = kib * 512
    vector = symmetric_memory.empty(elements, dtype=torch.bfloat16, device=f"cuda:{rank}")
    symmetric_memory.rendezvous(vector, dist.group.WORLD.group_name)
    vector.fill_(rank + 1)

    def call():
        return torch.ops.symm_mem.one_shot_all_reduce(vector, "sum", dist.group.WORLD.group_name)

    total = dist.get_world_size() * (dist.get_world_size() + 1) // 2
    if not bool((call() == total).all()):
        raise SystemExit(f"{kib} KiB: a wrong sum")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    graph.replay()
    slowest = []
    for _ in range(REPLAYS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        dist.barrier()
        call()  # lines the ranks up
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        worst = torch.tensor([begin.elapsed_time(end) * 1000 / CALLS], device=f"cuda:{rank}")
        dist.all_reduce(worst, op=dist.ReduceOp.MAX)
        slowest.append(worst.item())
    return sorted(slowest)[REPLAYS // 2]


def run(rank, ranks):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533", NCCL_NVLS_ENABLE="0",
                      TORCH_SYMM_MEM_DISABLE_MULTICAST="1")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=ranks)
    for kib in KIB:
        us = microseconds(rank, kib)
        if rank == 0:
            print(f"{kib:9} KiB {us:8.2f} us", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    world = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    print(f"PyTorch {torch.__version__}, {world} x {torch.cuda.get_device_name(0)}", flush=True)
    processes.spawn(run, args=(world,), nprocs=world)
