# SPDX-License-Identifier: Apache-2.0
"""NumPy's arrays in a pool of tidemark, which keeps the memory of arrays that are gone for the next ones.

    import numpy, tidemark_numpy

    with tidemark_numpy.pool(max_cached_bytes=512 << 20):
        result = simulate(numpy.zeros((4096, 4096)))    # its temporaries cost no page faults
    print(result.sum())                                 # arrays outlive the block

docs/numpy.md of tidemark says what it costs, and what holds with threads and forks.
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
# The pools whose blocks are open in this context, the innermost last, each with the handler before it.
_open_blocks = contextvars.ContextVar("tidemark_numpy.open_blocks", default=())
_open_traces = set()
_installing = threading.Lock()  # guards _installed
_installed = None


class pool_stats(typing.NamedTuple):
    """What a pool holds and did, since it was made. Bytes are of blocks: an array's, its header and what is rounded up."""

    allocations: int  # arrays' blocks allocated
    deallocations: int  # and freed
    hits: int  # of the allocations, those served from what was cached
    misses: int  # and those that took memory from the system
    used_blocks: int  # live
    used_bytes: int  # of live blocks
    cached_bytes: int  # of free blocks, ready to be allocated
    held_bytes: int  # taken from the system and not returned to it


class pool:
    """Memory for the arrays that are made in its `with` block, in the calling context (a thread, or a task of asyncio).

    Free memory is kept for the next arrays, up to `max_cached_bytes`; 0 keeps nothing. With `huge_pages` they are
    requested for arrays of 4 MiB and more, as NumPy requests them. The pool lives as long as the last
    array that was made in it. Blocks nest; one pool may be used in several, also by several threads.
    """

    def __init__(self, *, max_cached_bytes=_DEFAULT_CACHED_BYTES, huge_pages=True):
        self._options = _checked_options(max_cached_bytes, huge_pages)
        self._capsule = _core.make(*self._options)
        weakref.finalize(self, _core.retire, self._capsule).atexit = False  # no array to come has a use for what is cached

    def __enter__(self):
        before = _core.set_handler(self._capsule)
        _open_blocks.set((*_open_blocks.get(), (self, before)))
        return self

    def __exit__(self, kind, error, where):
        opened = _open_blocks.get()
        own = max((i for i, (each, _) in enumerate(opened) if each is self), default=None)
        if own is not None:
            # Of one that is not the innermost, the block inside it goes back to where this one began.
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
        """A `pool_stats` of this pool."""
        return pool_stats(*_core.stats(self._capsule))

    def trim(self):
        """Returns what is cached to the system. Arrays stay valid."""
        _core.trim(self._capsule)


def install(*, max_cached_bytes=_DEFAULT_CACHED_BYTES, huge_pages=True):
    """Makes one pool of this process the handler of the calling context, without an end, and returns it.

    The first call makes the pool; later ones, with the same arguments, use it in other contexts. NumPy keeps its handler
    in a context variable, and a new thread begins with NumPy's own: call this in each thread, for example as the
    initializer of a ThreadPoolExecutor.
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
    """A `pool_stats` of the pool that the calling context uses."""
    return pool_stats(*_core.stats(_current("stats")))


class trace:
    """Writes each request of the pool that the calling context uses to files, until `close()` or the end of its `with`.

    `csv` is what tidemark-report shows and other tools of tidemark replay, `chrome` a timeline of live bytes for
    https://ui.perfetto.dev; one of them may be None. A pool has one trace at a time.
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
        """Completes the files. Raises OSError if something was not written. A second call does nothing."""
        capsule, self._capsule = self._capsule, None
        if capsule is not None:
            _open_traces.discard(self)
            _core.close_trace(capsule)


class leak(typing.NamedTuple):
    """Arrays that are alive and were made by one line."""

    filename: str
    line: int
    arrays: int
    bytes: int

    def __str__(self):
        return f"{self.filename}:{self.line}: {self.arrays} arrays, {self.bytes} bytes"


def leaks(since=None):
    """The arrays of this process that are alive, by the line of Python that made them, the largest sum first.

    Call `tracemalloc.start()` before they are made. `since`, a snapshot of tracemalloc, leaves out what it has.
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
