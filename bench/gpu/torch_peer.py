# SPDX-License-Identifier: Apache-2.0
"""Measures PyTorch's caching allocator as a row for tidemark_gpu_table. The time includes the call from Python."""
import sys
import time

try:
    import torch
except ImportError:
    torch = None
if torch is None or not torch.cuda.is_available():
    print("python3 has no torch with a device")
    sys.exit(77)

BATCH, STEPS = 64, 2000


def step_times(size):
    stream = torch.cuda.current_stream().cuda_stream
    times = []
    for _ in range(STEPS):
        begin = time.perf_counter_ns()
        blocks = [torch.cuda.caching_allocator_alloc(size, 0, stream) for _ in range(BATCH)]
        for block in blocks:
            torch.cuda.caching_allocator_delete(block)
        times.append((time.perf_counter_ns() - begin) / BATCH)
    return sorted(times)


print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name(0)}\n")
print("| bytes | p50, ns a block | p99 | largest |\n|---|---|---|---|")
for wanted in (256, 4096, 65536, 1 << 20):
    taken = step_times(wanted)
    print(f"| {wanted} | {taken[STEPS // 2]:.0f} | {taken[STEPS * 99 // 100]:.0f} | {taken[-1]:.0f} |")
