# SPDX-License-Identifier: Apache-2.0
"""Tests arrays in a pool: they equal NumPy's own, outlive the pool, and their memory is reused within the limit."""
import gc
import pickle
import random
import resource

import numpy

import support
import tidemark_numpy
from support import MiB, equal, handler, resident_bytes


def arrays_outlive_the_block_and_the_pool():
    with tidemark_numpy.pool() as pool:
        kept = [numpy.full(n, n) for n in (1, 1000, 100_000, 1_000_000)]
    del pool
    gc.collect()
    numpy.ones(1_000_000)
    for array in kept:
        equal(handler(array), "tidemark_numpy")
        assert (array == array.size).all()
        array.resize(2 * array.size, refcheck=False)
        equal(int(array[0]), array.size // 2)


def memory_goes_with_the_last_array():
    before = resident_bytes()
    with tidemark_numpy.pool(max_cached_bytes=1024 * MiB):
        kept = numpy.ones(1000)
        for _ in range(3):
            temporary = [numpy.ones(MiB) for _ in range(20)]
        del temporary
    # The pool has no name, so it has ended, and no later array can use its cached memory.
    assert resident_bytes() < before + 40 * MiB, resident_bytes() - before
    del kept


def arrays_that_outlive_a_pool_return_their_memory_when_freed():
    with tidemark_numpy.pool(max_cached_bytes=1024 * MiB):
        kept = [numpy.ones(MiB) for _ in range(20)]
        last = numpy.ones(10)
    full = resident_bytes()
    del kept
    assert resident_bytes() < full - 140 * MiB, full - resident_bytes()
    equal(float(last.sum()), 10.0)


def memory_of_a_freed_array_is_reused():
    with tidemark_numpy.pool() as pool:
        for size in (10, 1000, 50_000, 200_000, 3_000_000):
            array = numpy.empty(size)
            address = array.ctypes.data
            del array
            before = pool.stats()
            array = numpy.empty(size)
            equal(array.ctypes.data, address)
            equal(pool.stats().misses, before.misses)
            equal(pool.stats().hits, before.hits + 1)


def zeros_are_zeros_in_used_memory():
    with tidemark_numpy.pool() as pool:
        for size in (3, 5000, 100_000, 1_000_000):
            numpy.full(size, 7.0)
            before = pool.stats().misses
            assert not numpy.zeros(size).any()
            equal(pool.stats().misses, before)


def huge_zeros_use_memory_only_for_written_pages():
    with tidemark_numpy.pool():
        before = resident_bytes()
        table = numpy.zeros(128 * MiB)
        table[:: 16 * MiB] = 1
        assert resident_bytes() < before + 8 * MiB, resident_bytes() - before


def blocks_nest_and_restore_the_outer_handler():
    own = handler()
    with tidemark_numpy.pool() as outer:
        with tidemark_numpy.pool() as inner:
            array = numpy.ones(1000)
            with outer:
                other = numpy.ones(1000)
            more = numpy.ones(1000)
        equal((inner.stats().used_blocks, outer.stats().used_blocks), (2, 1))
        assert tidemark_numpy.stats() == outer.stats()
    equal(handler(), own)
    del array, other, more


def an_error_ends_a_block_too():
    own = handler()
    try:
        with tidemark_numpy.pool():
            raise KeyError("mine")
    except KeyError:
        equal(handler(), own)


def every_way_to_make_an_array_works():
    with tidemark_numpy.pool() as pool:
        made = [numpy.empty(0), numpy.zeros((0, 5)), numpy.empty((3, 0), "S80"), numpy.array(1.5), numpy.array(["a", "bcd"]),
                numpy.array([{}, None], object), numpy.zeros(3, [("x", "i4"), ("y", "S7")]), numpy.frombuffer(b"abcd", "u1").copy(),
                numpy.fromiter(range(70_000), int), numpy.asfortranarray(numpy.ones((300, 400))),
                pickle.loads(pickle.dumps(numpy.arange(50_000))), numpy.concatenate([numpy.ones(9), numpy.zeros(90_000)]),
                numpy.random.default_rng(1).random((400, 400)) @ numpy.ones((400, 3))]
        made[0].__setstate__((1, (4,), numpy.dtype("u1"), False, b"wxyz"))
        equal(made[0].tolist(), [119, 120, 121, 122])
        equal(made[8][-1], 69_999)
        assert (made[10] == numpy.arange(50_000)).all()
        # One of no elements, whose size NumPy does not remember: it frees another size than it requested.
        del made
        gc.collect()
        equal(pool.stats().used_bytes, 0)


def cached_memory_stays_within_the_limit():
    random.seed(24)
    limit = 48 * MiB
    with tidemark_numpy.pool(max_cached_bytes=limit) as pool:
        live = []
        for _ in range(400):
            live.append(numpy.ones(int(10 ** random.uniform(2, 6.3))))
            if len(live) > 12:
                del live[random.randrange(len(live))]
            now = pool.stats()
            assert now.cached_bytes <= limit, now
        live.clear()
        assert 0 < pool.stats().cached_bytes <= limit, pool.stats()


def peak_memory_stays_within_live_arrays_and_the_limit():
    random.seed(24)
    limit = 64 * MiB
    with tidemark_numpy.pool(max_cached_bytes=limit):
        before = resident_bytes()
        live, live_bytes, most_live = [], 0, 0
        # Every second array stays for a while, and sizes grow, so that free blocks fit no later request.
        for step in range(300):
            live.append(numpy.ones(30_000 + 5_000 * step + random.randrange(1000)))
            live_bytes += live[-1].nbytes
            if len(live) > 30:
                live_bytes -= live[step % 30].nbytes
                del live[step % 30]
            most_live = max(most_live, live_bytes)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert peak <= before + most_live + limit + 8 * MiB, (peak - before, most_live, limit)


def trim_returns_cached_memory():
    with tidemark_numpy.pool(max_cached_bytes=512 * MiB) as pool:
        kept = numpy.ones(MiB)
        [numpy.ones(MiB) for _ in range(20)]
        full = resident_bytes()
        assert pool.stats().cached_bytes > 150 * MiB
        pool.trim()
        assert pool.stats().cached_bytes < MiB, pool.stats()
        assert resident_bytes() < full - 140 * MiB
        equal(float(kept.sum()), float(MiB))


def exhausted_memory_empties_the_cache_and_raises_memory_error():
    with tidemark_numpy.pool(max_cached_bytes=1024 * MiB) as pool:
        numpy.ones(64 * MiB)
        assert pool.stats().cached_bytes > 500 * MiB
        with open("/proc/self/statm") as numbers:
            mapped = int(numbers.read().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (mapped + 300 * MiB, resource.RLIM_INFINITY))
        equal(numpy.empty(700 * MiB, "u1").nbytes, 700 * MiB)  # the request fits once nothing is cached
        try:
            numpy.empty(2048 * MiB, "u1")
        except MemoryError:
            equal(float(numpy.ones(1000).sum()), 1000.0)
        else:
            raise AssertionError("there was no MemoryError")


def _has_huge_pages(array):
    address, found = array.ctypes.data, False
    with open("/proc/self/smaps") as regions:
        for line in regions:
            first = line.split()[0]
            if "-" in first and not first.endswith(":"):
                begin, end = (int(text, 16) for text in first.split("-"))
                found = begin <= address + array.nbytes // 2 < end
            elif found and first == "VmFlags:":
                return "hg" in line.split()


def huge_pages_are_an_option():
    with tidemark_numpy.pool(huge_pages=False):
        equal(_has_huge_pages(numpy.ones(2 * MiB)), False)
    with tidemark_numpy.pool():
        equal(_has_huge_pages(numpy.ones(100_000)), False)
        equal(_has_huge_pages(numpy.zeros(4 * MiB)), False)  # it may be written here and there
    with tidemark_numpy.pool():
        equal(_has_huge_pages(numpy.ones(2 * MiB)), True)


if __name__ == "__main__":
    support.run(globals())
