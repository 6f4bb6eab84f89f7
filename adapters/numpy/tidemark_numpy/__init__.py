# SPDX-License-Identifier: Apache-2.0
"""NumPy's arrays in a pool of tidemark, which reuses the memory of freed arrays for new arrays.

    import numpy, tidemark_numpy

    with tidemark_numpy.pool(max_cached_bytes=512 << 20):
        result = simulate(numpy.zeros((4096, 4096)))    # its temporaries cost no page faults
    print(result.sum())                                 # arrays outlive the block

tidemark's docs/numpy.md describes the cost, and the behaviour with threads and forks.
"""
import atexit
import contextvars
import operator
import os
import threading
import tracemalloc
import typing
import weakref

import numpy

from . import _core

__all__ = ["install", "leak", "leaks", "pool", "pool_stats", "stats", "trace"]

_DEFAULT_CACHED_BYTES = 256 << 20
# The pools with open blocks in this context, the innermost last, each with the previous handler.
_open_blocks = contextvars.ContextVar("tidemark_numpy.open_blocks", default=())
_open_traces = set()
_installing = threading.Lock()  # guards _installed
_installed = None


class pool_stats(typing.NamedTuple):
    """Statistics of a pool since its construction. Bytes are of blocks: an array, its header and rounding."""

    allocations: int  # blocks allocated for arrays
    deallocations: int  # blocks freed
    hits: int  # allocations served from cached memory
    misses: int  # allocations that took memory from the system
    used_blocks: int  # live blocks
    used_bytes: int  # bytes of live blocks
    cached_bytes: int  # bytes of free blocks, ready for allocation
    held_bytes: int  # bytes taken from the system and not returned


class pool:
    """Memory for arrays that are made in its `with` block, in the calling context (a thread, or an asyncio task).

    The pool keeps free memory for later arrays, up to `max_cached_bytes`; 0 keeps nothing. `huge_pages` requests
    huge pages for arrays of 4 MiB and more, as NumPy does. The pool exists until its last array is freed. Blocks
    nest. One pool may be used in several blocks, also by several threads.
    """

    def __init__(self, *, max_cached_bytes=_DEFAULT_CACHED_BYTES, huge_pages=True):
        self._options = _checked_options(max_cached_bytes, huge_pages)
        self._capsule = _core.make(*self._options)
        weakref.finalize(self, _core.retire, self._capsule).atexit = False  # later arrays cannot reuse cached memory

    def __enter__(self):
        before = _core.set_handler(self._capsule)
        _open_blocks.set((*_open_blocks.get(), (self, before)))
        return self

    def __exit__(self, kind, error, where):
        opened = _open_blocks.get()
        own = max((i for i, (each, _) in enumerate(opened) if each is self), default=None)
        if own is not None:
            # A block that is not the innermost: the block inside it restores the handler from before this
            # block.
            before = opened[own][1]
            rest = [*opened[:own], *opened[own + 1:]]
            if own == len(rest):
                _core.set_handler(before)
            else:
                rest[own] = (rest[own][0], before)
            _open_blocks.set(tuple(rest))
        if own is None or own != len(opened) - 1:
            raise RuntimeError("tidemark_numpy: this is not the innermost pool of this context: end blocks in the reverse "
                               "order, in the context where they began")

    def __repr__(self):
        return "<tidemark_numpy.pool max_cached_bytes={} huge_pages={}>".format(*self._options)

    def stats(self):
        """Returns the statistics of this pool as a `pool_stats`."""
        return pool_stats(*_core.stats(self._capsule))

    def trim(self):
        """Returns cached memory to the system. Arrays stay valid."""
        _core.trim(self._capsule)


def install(*, max_cached_bytes=_DEFAULT_CACHED_BYTES, huge_pages=True):
    """Makes one pool of this process the permanent handler of the calling context, and returns the pool.

    The first call makes the pool; later calls, with the same arguments, use it in other contexts. NumPy keeps
    its handler in a context variable, and a new thread begins with NumPy's own handler. Call this function in
    each thread, for example as the initializer of a ThreadPoolExecutor.
    """
    global _installed
    with _installing:
        if _installed is None:
            _installed = pool(max_cached_bytes=max_cached_bytes, huge_pages=huge_pages)
        elif _installed._options != _checked_options(max_cached_bytes, huge_pages):
            raise ValueError(f"tidemark_numpy: {_installed!r} is installed in this process, and there is one at most")
    _core.set_handler(_installed._capsule)
    return _installed


def stats():
    """Returns the statistics of the calling context's pool as a `pool_stats`."""
    return pool_stats(*_core.stats(_current("stats")))


class trace:
    """Writes each request of the calling context's pool to files, until `close()` or the end of its `with` block.

    `csv` is a file for tidemark-report and for replays by other tools of tidemark. `chrome` is a timeline of
    live bytes for https://ui.perfetto.dev. One of them may be None. A pool has one trace at a time.
    """

    def __init__(self, csv=None, *, chrome=None):
        self._capsule = None
        capsule = _current("trace")
        if csv is None and chrome is None:
            raise ValueError("tidemark_numpy: trace wants the path of a file to write, csv or chrome")
        paths = [b"" if path is None else _checked_path(path) for path in (csv, chrome)]
        if not _core.open_trace(capsule, *paths):
            raise RuntimeError("tidemark_numpy: this pool has a trace already: close it first")
        self._capsule = capsule
        _open_traces.add(self)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, where):
        self.close()

    def close(self):
        """Completes the files. Raises OSError if a write failed. A second call does nothing."""
        capsule, self._capsule = self._capsule, None
        if capsule is not None:
            _open_traces.discard(self)
            _core.close_trace(capsule)


class leak(typing.NamedTuple):
    """Live arrays that one line made."""

    filename: str
    line: int
    arrays: int
    bytes: int

    def __str__(self):
        return f"{self.filename}:{self.line}: {self.arrays} arrays, {self.bytes} bytes"


def leaks(since=None):
    """Returns the live arrays of this process by the Python line that made them, the largest sum first.

    Call `tracemalloc.start()` before the arrays are made. `since`, a snapshot of tracemalloc, excludes its
    arrays.
    """
    if not tracemalloc.is_tracing():
        raise RuntimeError("tidemark_numpy: leaks needs tracemalloc: call tracemalloc.start() before the arrays are made")
    if since is not None and not isinstance(since, tracemalloc.Snapshot):
        raise TypeError(f"tidemark_numpy: leaks wants a snapshot of tracemalloc, not {since!r}")
    of_arrays = [tracemalloc.DomainFilter(True, numpy.lib.tracemalloc_domain)]
    now = tracemalloc.take_snapshot().filter_traces(of_arrays)
    if since is None:
        found = [(each.traceback[0], each.count, each.size) for each in now.statistics("lineno")]
    else:
        found = [(each.traceback[0], each.count_diff, each.size_diff)
                 for each in now.compare_to(since.filter_traces(of_arrays), "lineno")]
    lines = [leak(frame.filename, frame.lineno, count, size) for frame, count, size in found if count > 0]
    return sorted(lines, key=lambda each: -each.bytes)


def _current(caller):
    capsule = _core.current()
    if capsule is None:
        raise RuntimeError(f"tidemark_numpy: {caller} is for a context that uses a pool: call it in a block of "
                           "tidemark_numpy.pool, or after tidemark_numpy.install()")
    return capsule


def _checked_options(max_cached_bytes, huge_pages):
    try:
        if isinstance(max_cached_bytes, (bool, numpy.bool_)):
            raise TypeError
        number = operator.index(max_cached_bytes)
    except TypeError:
        raise TypeError(f"tidemark_numpy: max_cached_bytes is a whole number of bytes, not {max_cached_bytes!r}") from None
    if not 0 <= number < 1 << 62:
        raise ValueError(f"tidemark_numpy: max_cached_bytes is 0 or more and less than 2**62, not {number}")
    if not isinstance(huge_pages, (bool, numpy.bool_)):
        raise TypeError(f"tidemark_numpy: huge_pages is True or False, not {huge_pages!r}")
    return number, bool(huge_pages)


def _checked_path(path):
    try:
        encoded = os.fsencode(path)
    except TypeError:
        raise TypeError(f"tidemark_numpy: the path of a trace is a text or a path, not {path!r}") from None
    if not encoded:
        raise ValueError("tidemark_numpy: the path of a trace is empty")
    return encoded


@atexit.register
def _close_traces():
    for each in list(_open_traces):
        each.close()
