# SPDX-License-Identifier: Apache-2.0
"""PyTorch's memory of a GPU from tidemark, by a pluggable allocator.

    import tidemark_torch
    tidemark_torch.install(resource="planned")   # before PyTorch's first tensor on a GPU
    for batch in batches:
        tidemark_torch.begin_step()              # requests that repeat each step are planned
        train(batch)
    print(tidemark_torch.stats())

The module needs PyTorch 2.2 or later with CUDA. It finds libtidemark_torch.so in the same folder, or at the
path in the environment variable TIDEMARK_TORCH_LIBRARY. docs/torch.md describes the integration with PyTorch
and its limits.
"""
import contextlib
import ctypes
import json
import os

__all__ = ["begin_step", "close_trace", "collect", "end_step", "install", "mem_pool", "stats", "step"]

# PyTorch's setters and our functions for them.
_SETTERS = {
    "set_record_stream_fn": "tidemark_torch_record_stream",
    "set_reset_fn": "tidemark_torch_reset",
    "set_memory_fraction_fn": "tidemark_torch_memory_fraction",
    "set_base_alloc_fn": "tidemark_torch_base_alloc",
    "set_begin_allocate_to_pool": "tidemark_torch_begin_pool",
    "set_end_allocate_to_pool_fn": "tidemark_torch_end_pool",
    "set_release_pool": "tidemark_torch_release_pool",
}

_library = None
_allocators = []  # PyTorch keeps addresses of their contents


def _path():
    beside = os.path.join(os.path.dirname(os.path.realpath(__file__)), "libtidemark_torch.so")
    return os.environ.get("TIDEMARK_TORCH_LIBRARY") or beside


def _load():
    global _library
    if _library is None:
        try:
            library = ctypes.CDLL(_path())
        except OSError as error:
            raise RuntimeError(f"tidemark_torch: cannot load {_path()}: {error}; TIDEMARK_TORCH_LIBRARY may name it") from None
        library.tidemark_torch_configure.argtypes = [ctypes.c_char_p, ctypes.c_longlong, ctypes.c_char_p,
                                                     ctypes.c_longlong]
        library.tidemark_torch_stats.argtypes = [ctypes.c_int]
        library.tidemark_torch_begin_step.argtypes = [ctypes.c_longlong]
        for name in ("configure", "begin_step", "end_step", "close_trace", "stats"):
            getattr(library, "tidemark_torch_" + name).restype = ctypes.c_char_p
        _library = library
    return _library


def _check(sentence, kind=RuntimeError):
    if sentence is not None:
        raise kind(sentence.decode(errors="replace"))


def _allocator(alloc, free):
    import torch
    if not hasattr(getattr(torch.cuda, "memory", None), "CUDAPluggableAllocator"):
        raise RuntimeError("tidemark_torch: this PyTorch has no torch.cuda.memory.CUDAPluggableAllocator")
    made = torch.cuda.memory.CUDAPluggableAllocator(_path(), alloc, free)
    _allocators.append(made)
    return made


def _number(name, value, least, sentence):
    if value is None:
        return -1
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"tidemark_torch: {name} is {value!r}, {sentence}")
    if not least <= value < 2**63:
        raise ValueError(f"tidemark_torch: {name} is {value}, {sentence}")
    return value


def install(resource=None, max_cached_bytes=None, trace=None, max_kinds=None):
    """Makes tidemark the allocator of PyTorch. Environment variables replace arguments that are None:
    TIDEMARK_TORCH_RESOURCE, TIDEMARK_TORCH_MAX_CACHED_BYTES, TIDEMARK_TORCH_TRACE, TIDEMARK_TORCH_MAX_KINDS.

    resource: "heap" (default) or "planned". max_cached_bytes: maximum idle bytes of each stream; no limit by
    default. trace: path of a CSV file for tidemark-report. max_kinds: maximum kinds of steps with a plan.

    Raises TypeError or ValueError for an invalid setting, RuntimeError if PyTorch has already used its own
    allocator or is too old.
    """
    import torch
    library = _load()
    if resource is not None and not isinstance(resource, str):
        raise TypeError(f"tidemark_torch: resource is {resource!r}, not \"heap\" or \"planned\"")
    bytes_or_default = _number("max_cached_bytes", max_cached_bytes, 0, "not a number of bytes")
    kinds_or_default = _number("max_kinds", max_kinds, 1, "not a number of kinds")
    if trace is not None and not isinstance(trace, (str, os.PathLike)):
        raise TypeError(f"tidemark_torch: trace is {trace!r}, not a path")
    allocator = _allocator("tidemark_torch_alloc", "tidemark_torch_free")
    inner = allocator.allocator()
    missing = [setter for setter in _SETTERS if not hasattr(inner, setter)]
    if missing:
        raise RuntimeError(f"tidemark_torch: PyTorch {torch.__version__} has no {missing[0]}; 2.2 or later has it")
    _check(library.tidemark_torch_configure(
        None if resource is None else resource.encode(), bytes_or_default,
        None if trace is None else os.fsencode(trace), kinds_or_default), ValueError)
    for setter, function in _SETTERS.items():
        getattr(inner, setter)(ctypes.cast(getattr(library, function), ctypes.c_void_p).value)
    torch.cuda.memory.change_current_allocator(allocator)


def mem_pool():
    """Returns a torch.cuda.MemPool whose segments come from tidemark, for torch.cuda.use_mem_pool.

    PyTorch's own allocator stays in front of the pool: do not use it in programs that have called install().
    """
    import torch
    _load()
    return torch.cuda.MemPool(_allocator("tidemark_torch_segment_alloc", "tidemark_torch_segment_free").allocator())


def begin_step(kind=0):
    """Ends the open step and begins the next, on all devices and streams, for resource "planned" only.

    kind: an integer that is equal for steps with the same tensors, such as a sequence length. Each kind has a
    plan.
    """
    if not isinstance(kind, int):
        raise TypeError(f"tidemark_torch: kind is {kind!r}, not an integer")
    _check(_load().tidemark_torch_begin_step((kind + 2**63) % 2**64 - 2**63))


def end_step():
    """Ends the open step, if any. Later allocations belong to no step."""
    _check(_load().tidemark_torch_end_step())


@contextlib.contextmanager
def step(kind=0):
    """`with tidemark_torch.step():` calls begin_step() and end_step()."""
    begin_step(kind)
    try:
        yield
    finally:
        end_step()


def stats(device=0):
    """Returns a device's statistics, with the names of docs/design.md; {} if the device has no memory yet."""
    return json.loads(_load().tidemark_torch_stats(device))


def collect():
    """Returns all idle memory to the device, as torch.cuda.empty_cache() does after install()."""
    _load().tidemark_torch_reset()


def close_trace():
    """Completes the file of the trace. The end of the process completes it too."""
    _check(_load().tidemark_torch_close_trace())
