# SPDX-License-Identifier: Apache-2.0
"""Tests that threads, tasks and processes use a pool by NumPy's rules for handlers."""
import asyncio
import concurrent.futures
import contextvars
import multiprocessing
import os
import queue
import sys
import threading

import numpy

import support
import tidemark_numpy
from support import equal, handler

OWN = "default_allocator"
OURS = "tidemark_numpy"


def _in_thread(call, *arguments):
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        return executor.submit(call, *arguments).result()


def a_new_thread_begins_with_numpys_own_handler():
    with tidemark_numpy.pool():
        equal(_in_thread(handler), OWN)
        equal(handler(), OURS)


def a_thread_in_a_copied_context_uses_the_pool():
    with tidemark_numpy.pool() as pool:
        array = _in_thread(contextvars.copy_context().run, numpy.ones, 1000)
        equal(handler(array), OURS)
        equal(pool.stats().used_blocks, 1)


def tasks_have_pools_of_their_own():
    async def work(pool):
        with pool:
            await asyncio.sleep(0.01)
            array = numpy.ones(1000)
            await asyncio.sleep(0.01)
            equal(pool.stats().used_blocks, 1)
        return handler(array)

    async def both():
        return await asyncio.gather(work(tidemark_numpy.pool()), work(tidemark_numpy.pool()))

    equal(asyncio.run(both()), [OURS, OURS])
    equal(handler(), OWN)


def install_is_permanent_and_creates_one_pool():
    pool = tidemark_numpy.install(max_cached_bytes=1 << 24)
    equal(handler(), OURS)
    assert tidemark_numpy.install(max_cached_bytes=1 << 24) is pool
    equal(_in_thread(handler), OWN)
    with tidemark_numpy.pool():
        pass
    array = numpy.ones(1000)
    equal(pool.stats().used_blocks, 1)
    del array


def install_is_an_initializer_of_threads():
    pool = tidemark_numpy.install()
    with concurrent.futures.ThreadPoolExecutor(2, initializer=tidemark_numpy.install) as executor:
        arrays = list(executor.map(numpy.ones, range(100, 200)))
    equal({handler(array) for array in arrays}, {OURS})
    equal(pool.stats().used_blocks, 100)


def install_makes_one_pool_for_concurrent_first_calls():
    begin = threading.Barrier(8)
    switched = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    installed = []

    def call():
        begin.wait()
        installed.append(tidemark_numpy.install())

    for _ in range(200):
        tidemark_numpy._installed = None
        installed.clear()
        threads = [threading.Thread(target=call) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        equal(len(set(map(id, installed))), 1)
    sys.setswitchinterval(switched)


def arrays_are_freed_by_other_threads():
    made, errors = queue.Queue(8), []

    def make(pool, seed):
        random = numpy.random.default_rng(seed)
        with pool:
            for size in random.integers(1, 200_000, 400):
                made.put(numpy.full(int(size), size))

    def check():
        for _ in range(800):
            array = made.get()
            if not (array == array.size).all():
                errors.append(array.size)

    pool = tidemark_numpy.pool(max_cached_bytes=1 << 25)
    threads = [threading.Thread(target=check), *(threading.Thread(target=make, args=(pool, seed)) for seed in (1, 2))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(errors, [])
    equal(pool.stats().used_blocks, 0)


def _work():
    arrays = [numpy.full(size, 3.0) for size in (10, 5_000, 100_000, 600_000)]
    return sum(float(array.sum()) for array in arrays) == 3.0 * 705_010


def a_forked_child_uses_the_pool():
    with tidemark_numpy.pool() as pool:
        kept = numpy.arange(500_000)
        assert _work()
        for _ in range(3):
            child = os.fork()
            if child == 0:
                same = bool((kept == numpy.arange(500_000)).all()) and _work() and handler() == OURS
                os._exit(0 if same else 1)
            equal(os.waitpid(child, 0)[1], 0)
        assert _work()
        assert pool.stats().used_blocks >= 1


def a_child_is_forked_while_threads_use_the_pool():
    pool, ended = tidemark_numpy.pool(max_cached_bytes=1 << 24), threading.Event()

    def use():
        with pool:
            while not ended.is_set():
                _work()

    threads = [threading.Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                with pool:
                    os._exit(0 if _work() else 1)
            equal(os.waitpid(child, 0)[1], 0)
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def workers_of_multiprocessing_use_the_pool():
    tidemark_numpy.install()
    for method, initializer in (("fork", None), ("spawn", tidemark_numpy.install)):
        with multiprocessing.get_context(method).Pool(2, initializer) as workers:
            equal(workers.starmap(handler, [(), ()]), [OURS, OURS])
            equal(workers.map(numpy.sum, [numpy.ones(n) for n in (3, 100_000)]), [3.0, 100_000.0])


if __name__ == "__main__":
    support.run(globals())
