# SPDX-License-Identifier: Apache-2.0
"""Measures training with PyTorch by allocator: time per step, allocated device memory, and the host's cost of a tensor. Prints the
table for docs/gpu.md. Each allocator has its own process, because an allocator is chosen once.

usage: torch_training.py [ALLOCATOR]
"""
import json
import os
import subprocess
import sys
import time

ALLOCATORS = ("native", "expandable", "heap", "planned")
OURS = ("heap", "planned")
WIDTH, LAYERS, HEADS, WORDS, BATCH, LENGTH = 768, 12, 12, 32000, 16, 512
WARM_STEPS, TIMED_STEPS, TENSORS = 10, 20, 20000


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


def measured(allocator):
    if allocator == "expandable":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    import torch
    begin_step = lambda: None  # noqa: E731
    if allocator in OURS:
        import tidemark_torch
        tidemark_torch.install(resource=allocator)
        begin_step = tidemark_torch.begin_step
    torch.cuda.init()
    free_before, _ = torch.cuda.mem_get_info()
    torch.manual_seed(1)
    model = transformer(torch)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    words = torch.randint(WORDS, (BATCH, LENGTH), device="cuda")
    times = []
    for _ in range(WARM_STEPS + TIMED_STEPS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        begin_step()
        with torch.autocast("cuda", torch.bfloat16):
            scores = model(words)
            loss = torch.nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1).float(), words[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        last_loss = loss.item()
        del scores, loss
        times.append((time.perf_counter() - begin) * 1e3)
    free_after, _ = torch.cuda.mem_get_info()
    result = {"allocator": allocator, "step_ms": sorted(times[WARM_STEPS:])[TIMED_STEPS // 2], "loss": last_loss,
              "held_mib": (free_before - free_after) >> 20}
    if allocator in OURS:
        tidemark_torch.end_step()
        stats = tidemark_torch.stats()
        result |= {"live_mib": stats["peak_bytes"] >> 20, "counted_mib": stats["held_bytes"] >> 20}
    else:
        result |= {"live_mib": torch.cuda.max_memory_allocated() >> 20,
                   "counted_mib": torch.cuda.memory_reserved() >> 20}
    return result | {"tensor_ns": ns_a_tensor(torch)}


def main():
    try:
        import torch
        found = torch.cuda.is_available()
    except ImportError:
        found = False
    if not found:
        print("python3 has no torch with a device")
        return 77
    print(f"PyTorch {torch.__version__}: {LAYERS} layers of width {WIDTH}, batch {BATCH} x {LENGTH}, bf16, AdamW.\n")
    print("| allocator | ms a step | held by the device, MiB | counted by the allocator, MiB | most live, MiB | held / most live | ns a tensor, from "
          "Python |\n|---|---|---|---|---|---|---|")
    failed = 0
    for allocator in ALLOCATORS:
        done = subprocess.run([sys.executable, __file__, allocator], capture_output=True, text=True)
        if done.returncode != 0:
            print(f"| {allocator} | {(done.stderr.strip().splitlines() or ['died'])[-1][:300]} | | | | | |")
            failed = 1
            continue
        seen = json.loads(done.stdout.strip().splitlines()[-1])
        print(f"| {allocator} | {seen['step_ms']:.1f} | {seen['held_mib']} | {seen['counted_mib']} | {seen['live_mib']} | "
              f"{seen['held_mib'] / max(seen['live_mib'], 1):.3f} | {seen['tensor_ns']:.0f} |", flush=True)
    return failed


if len(sys.argv) > 1:
    print(json.dumps(measured(sys.argv[1])))
else:
    sys.exit(main())
