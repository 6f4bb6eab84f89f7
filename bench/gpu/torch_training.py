# SPDX-License-Identifier: Apache-2.0
"""Measures training with PyTorch by allocator: time per step, allocated device memory, and the host's cost of a tensor. Prints the
table for docs/gpu.md. With `lengths`, the batches change each step; with `graphs`, 35 graphs of different batches share a pool; with
`caps`, it finds the smallest limit under which training runs. Each allocator has its own process, because an allocator is chosen once.

usage: torch_training.py [fixed|lengths|graphs|caps...]   (default: fixed)
"""
import bisect
import json
import os
import random
import subprocess
import sys
import time

ALLOCATORS = ("native", "expandable", "heap", "planned")
OURS = ("heap", "planned")
WIDTH, LAYERS, HEADS, WORDS, BATCH, LENGTH = 768, 12, 12, 32000, 16, 512
WARM_STEPS, TIMED_STEPS, TENSORS = 10, 20, 20000
CAPS = (1.01, 1.02, 1.05, 1.1, 1.15, 1.3)  # times the most live bytes
WORKS = {"fixed": f"batch {BATCH} x {LENGTH}", "lengths": "about 4,096 tokens in rows of 64 to 1,024",
         "graphs": "35 captured graphs of batch 256 to 1 in one pool"}


def layer(torch):
    class Layer(torch.nn.Module):
        """A decoder layer of a transformer: attention to earlier positions, then two linear maps."""

        def __init__(self):
            super().__init__()
            self.before_attention, self.before_maps = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
            self.to_heads, self.from_heads = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
            self.widen, self.narrow = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            batch, length, _ = x.shape
            heads = self.to_heads(self.before_attention(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
            query, key, value = heads.permute(2, 0, 3, 1, 4)
            seen = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + self.from_heads(seen.transpose(1, 2).reshape(batch, length, WIDTH))
            return x + self.narrow(torch.nn.functional.gelu(self.widen(self.before_maps(x))))

    return Layer()


def transformer(torch):
    return torch.nn.Sequential(torch.nn.Embedding(WORDS, WIDTH), *(layer(torch) for _ in range(LAYERS)),
                               torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, WORDS, bias=False)).cuda()


def ns_a_tensor(torch):
    def make(n):
        begin = time.perf_counter_ns()
        for _ in range(n):
            tensor = torch.empty(256, dtype=torch.uint8, device="cuda")
            del tensor
        return (time.perf_counter_ns() - begin) / n

    make(2000)
    return make(TENSORS)


def shape(work):
    if work != "lengths":
        return BATCH, LENGTH
    length = 64 * random.randint(1, 16)
    return 4096 // length + random.randint(0, 2), length


def step_times(torch, begin_step, work):
    model = transformer(torch)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    times = []
    for _ in range(WARM_STEPS + TIMED_STEPS * (3 if work == "lengths" else 1)):
        batch, length = shape(work)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        begin_step(4096 * batch + length)
        words = torch.randint(WORDS, (batch, length), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            scores = model(words)
            loss = torch.nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1).float(), words[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        del words, scores, loss
        times.append((time.perf_counter() - begin) * 1e3)
    return times[WARM_STEPS:]


def replay_times(torch):
    model = torch.nn.Sequential(*(torch.nn.Linear(4 * WIDTH, 4 * WIDTH) for _ in range(LAYERS))).cuda()
    pool, kept = torch.cuda.graph_pool_handle(), []
    with torch.no_grad():
        for batch in (*range(256, 7, -8), 4, 2, 1):
            x, graph = torch.zeros(8 * batch, 4 * WIDTH, device="cuda"), torch.cuda.CUDAGraph()
            model(x)  # the libraries allocate their workspaces
            with torch.cuda.graph(graph, pool=pool):
                kept.append((graph, x, model(x)))
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for graph, *_ in kept:
        graph.replay()
    torch.cuda.synchronize()
    return [(time.perf_counter() - begin) * 1e3], kept


def measured(allocator, work, cap_mib):
    if allocator == "expandable":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    import torch
    begin_step = lambda kind: None  # noqa: E731
    if allocator in OURS:
        import tidemark_torch
        tidemark_torch.install(resource=allocator, max_kinds=64)
        begin_step = tidemark_torch.begin_step
    torch.cuda.init()
    free_before, total = torch.cuda.mem_get_info()
    if cap_mib != 0:
        torch.cuda.set_per_process_memory_fraction(cap_mib * 2**20 / total)
    torch.manual_seed(1)
    random.seed(1)
    times, *kept = replay_times(torch) if work == "graphs" else (step_times(torch, begin_step, work),)
    free_after, _ = torch.cuda.mem_get_info()
    result = {"step_ms": sorted(times)[len(times) // 2], "held_mib": (free_before - free_after) >> 20}
    if allocator in OURS:
        tidemark_torch.end_step()
        stats = tidemark_torch.stats()
        result |= {"live_mib": stats["peak_bytes"] >> 20, "counted_mib": stats["held_bytes"] >> 20}
    else:
        result |= {"live_mib": torch.cuda.max_memory_allocated() >> 20,
                   "counted_mib": torch.cuda.memory_reserved() >> 20}
    return result | {"tensor_ns": ns_a_tensor(torch)}


def run(allocator, work, cap_mib=0):
    """Returns the numbers of a process, or its last line."""
    done = subprocess.run([sys.executable, __file__, "--process", allocator, work, str(cap_mib)], capture_output=True, text=True)
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or ["died"])[-1][:300]
    return json.loads(done.stdout.strip().splitlines()[-1])


def print_caps():
    print("\n| allocator | smallest limit under which training runs, / most live |\n|---|---|")
    failed = 0
    for allocator in ALLOCATORS:
        seen = run(allocator, "fixed")
        if isinstance(seen, str):
            failed, said = 1, seen
        else:
            at = bisect.bisect_left(CAPS, True, key=lambda cap: not isinstance(run(allocator, "fixed", cap * seen["live_mib"]), str))
            said = CAPS[at] if at < len(CAPS) else f"more than {CAPS[-1]}"
        print(f"| {allocator} | {said} |", flush=True)
    return failed


def print_work(work):
    print(f"\n{LAYERS} layers of width {WIDTH}, {WORKS[work]}.\n")
    print("| allocator | ms a step | held by the device, MiB | counted by the allocator, MiB | most live, MiB | held / most live | ns a tensor, from "
          "Python |\n|---|---|---|---|---|---|---|")
    failed = 0
    for allocator in ALLOCATORS:
        seen = run(allocator, work)
        if isinstance(seen, str):
            print(f"| {allocator} | {seen} | | | | | |")
            failed = 1
            continue
        print(f"| {allocator} | {seen['step_ms']:.1f} | {seen['held_mib']} | {seen['counted_mib']} | {seen['live_mib']} | "
              f"{seen['held_mib'] / max(seen['live_mib'], 1):.3f} | {seen['tensor_ns']:.0f} |", flush=True)
    return failed


def main(wanted):
    try:
        import torch
        found = torch.cuda.is_available()
    except ImportError:
        found = False
    if not found:
        print("python3 has no torch with a device")
        return 77
    print(f"PyTorch {torch.__version__}, bf16, AdamW.")
    return max([print_caps() if each == "caps" else print_work(each) for each in wanted or ["fixed"]])


if sys.argv[1:2] == ["--process"]:
    print(json.dumps(measured(sys.argv[2], sys.argv[3], float(sys.argv[4]))))
else:
    sys.exit(main(sys.argv[1:]))
