# SPDX-License-Identifier: Apache-2.0
"""Checks PyTorch on tidemark's allocator with each resource: losses equal those of PyTorch's own allocator; a
captured graph, a tensor that another stream uses, and the message for too little memory. Each check has its own process,
because an allocator is chosen once."""
import ast
import subprocess
import sys

try:
    import torch
except ImportError:
    torch = None
if torch is None or not torch.cuda.is_available():
    print("python3 has no torch with a device")
    sys.exit(77)

STEPS = 20


def network():
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).cuda()


def losses(begin_step):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(64, 256, device="cuda"), torch.randint(10, (64,), device="cuda")
    seen = []
    for _ in range(STEPS):
        begin_step()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    return seen


def replayed():
    model, x = network(), torch.randn(64, 256, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        model(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = model(x)
    junk = [torch.full((64, 512), 3.0, device="cuda") for _ in range(50)]
    del junk
    x.copy_(torch.randn(64, 256, device="cuda"))
    graph.replay()
    same = torch.allclose(result, model(x), rtol=1e-3, atol=1e-3)
    del graph
    torch.cuda.empty_cache()
    return same


def recorded():
    side = torch.cuda.Stream()
    for _ in range(50):
        tensor = torch.ones(1 << 20, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            total = tensor.sum()
        tensor.record_stream(side)
        del tensor
        torch.zeros(1 << 20, device="cuda")
        side.synchronize()
        if total.item() != 1 << 20:
            return False
    return True


def short_of_memory():
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    except RuntimeError as error:
        return "CUDA out of memory." in str(error)
    return False


def pooled():
    import tidemark_torch
    pool = tidemark_torch.mem_pool()
    with torch.cuda.use_mem_pool(pool):
        tensor = torch.ones(1 << 22, device="cuda")
    same = tensor.sum().item() == 1 << 22
    del tensor, pool
    return same


def answer(of):
    if of == "native":
        return losses(lambda: None)
    if of == "MemPool":
        return pooled()
    import tidemark_torch
    tidemark_torch.install(resource=of)
    seen = losses(tidemark_torch.begin_step)
    tidemark_torch.end_step()
    return seen, replayed(), recorded(), short_of_memory(), tidemark_torch.stats()


if len(sys.argv) > 1:
    print(repr(answer(sys.argv[1])))
    sys.exit()

failed = False
native = None
print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name(0)}\n\n| allocator | what was seen |\n|---|---|")
# All at once: they ask for results and not for times.
running = {each: subprocess.Popen([sys.executable, __file__, each], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
           for each in ("native", "heap", "planned", "MemPool")}
for each, done in running.items():
    stdout, stderr = done.communicate()
    said = stdout.strip().splitlines()[-1] if done.returncode == 0 else (stderr.strip().splitlines() or ["died"])[-1]
    is_right = done.returncode == 0
    if is_right and each == "native":
        native = ast.literal_eval(said)
    elif is_right and each == "MemPool":
        is_right = said == "True"
    elif is_right:
        seen, *answers, _ = ast.literal_eval(said)
        is_right = all(answers) and native is not None and max(abs(a - b) for a, b in zip(seen, native)) < 1e-3
    failed |= not is_right
    print(f"| {each} | {'right' if is_right else 'WRONG'}: {said[:400]} |")
sys.exit(failed)
