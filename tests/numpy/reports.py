# SPDX-License-Identifier: Apache-2.0
"""Tests statistics, traces, and lines that made live arrays. NumPy's own tracking continues.
REPORT in the environment is the program tidemark-report."""
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import tracemalloc

import numpy

import support
import tidemark_numpy
from support import equal


def stats_count_blocks_and_bytes():
    with tidemark_numpy.pool(max_cached_bytes=1 << 26) as pool:
        equal(tuple(pool.stats()), (0,) * 8)
        small, large = numpy.empty(100), numpy.empty(1_000_000)
        now = tidemark_numpy.stats()
        equal((now.allocations, now.deallocations, now.used_blocks), (2, 0, 2))
        assert 8_000_800 <= now.used_bytes <= 8_020_000, now
        equal(now.hits + now.misses, now.allocations)
        del small, large
        now = pool.stats()
        equal((now.deallocations, now.used_blocks, now.used_bytes), (2, 0, 0))
        assert now.held_bytes == now.cached_bytes > 8_000_000, now


def _events(path):
    with open(path, newline="") as file:
        return [(row["op"], int(row["id"]), int(row["bytes"])) for row in csv.DictReader(file) if row["op"] in "af"]


def trace_records_each_request_while_open():
    with tempfile.TemporaryDirectory() as folder, tidemark_numpy.pool():
        before = numpy.empty(10)
        with tidemark_numpy.trace(f"{folder}/run.csv", chrome=f"{folder}/run.json"):
            array = numpy.empty(100)
            zeros = numpy.zeros(1_000_000)
            zeros.resize(2_000_000, refcheck=False)
            del array, before
        numpy.empty(5)
        equal(_events(f"{folder}/run.csv"), [("a", 0, 800), ("a", 1, 8_000_000), ("a", 2, 16_000_000), ("f", 1, 0), ("f", 0, 0)])
        assert not zeros.any()
        del zeros
        with open(f"{folder}/run.json") as file:
            live = [event["args"]["live bytes"] for event in json.load(file) if event["ph"] == "C"]
        equal(max(live), 24_000_800)
        equal(live[-1], 16_000_000)
        tidemark_numpy.trace(f"{folder}/next.csv").close()  # the pool no longer has a trace
        equal(_events(f"{folder}/next.csv"), [])


def trace_is_shown_by_tidemark_report():
    with tempfile.TemporaryDirectory() as folder, tidemark_numpy.pool():
        with tidemark_numpy.trace(pathlib.Path(folder, "run.csv")):
            numpy.ones(1000).sum()
        subprocess.run([os.environ["REPORT"], f"{folder}/run.csv", "-o", f"{folder}/run.html"], check=True)
        assert os.path.getsize(f"{folder}/run.html") > 1000


def trace_is_completed_when_the_program_ends():
    with tempfile.TemporaryDirectory() as folder:
        program = (f"import numpy, tidemark_numpy; tidemark_numpy.install(); tidemark_numpy.trace({folder + '/run.csv'!r}); "
                   "kept = [numpy.empty(100) for _ in range(10000)]")
        subprocess.run([sys.executable, "-c", program], check=True)
        equal(len(_events(f"{folder}/run.csv")), 10_000)


def trace_records_other_threads():
    with tempfile.TemporaryDirectory() as folder, tidemark_numpy.pool() as pool:
        def work():
            with pool:
                for _ in range(200):
                    numpy.empty(50_000)

        with tidemark_numpy.trace(f"{folder}/run.csv"):
            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        equal(sum(op == "a" for op, _, _ in _events(f"{folder}/run.csv")), 600)


def a_forked_child_writes_nothing_to_a_trace():
    with tempfile.TemporaryDirectory() as folder, tidemark_numpy.pool():
        with tidemark_numpy.trace(f"{folder}/run.csv"):
            numpy.empty(100)
            child = os.fork()
            if child == 0:
                numpy.empty(200)
                os._exit(0)
            equal(os.waitpid(child, 0)[1], 0)
        equal(_events(f"{folder}/run.csv"), [("a", 0, 800), ("f", 0, 0)])


def tracemalloc_keeps_the_domain_of_numpy():
    tracemalloc.start()
    with tidemark_numpy.pool():
        kept = [numpy.empty(size) for size in (10, 1000, 100_000)]
        kept[0].resize(50_000, refcheck=False)
        of_numpy = [tracemalloc.DomainFilter(True, numpy.lib.tracemalloc_domain)]
        found = tracemalloc.take_snapshot().filter_traces(of_numpy).traces
        equal(sorted(trace.size for trace in found), [8_000, 400_000, 800_000])
        del kept
        equal(len(tracemalloc.take_snapshot().filter_traces(of_numpy).traces), 0)


def leaks_name_the_line_of_python():
    tracemalloc.start()
    with tidemark_numpy.pool():
        line = sys._getframe().f_lineno + 1
        kept = [numpy.empty(1000) for _ in range(3)]
        since = tracemalloc.take_snapshot()
        larger = numpy.empty(100_000)
        numpy.empty(500)
    equal([(each.line, each.arrays, each.bytes) for each in tidemark_numpy.leaks()],
          [(line + 2, 1, 800_000), (line, 3, 24_000)])
    equal([str(each) for each in tidemark_numpy.leaks(since)], [f"{__file__}:{line + 2}: 1 arrays, 800000 bytes"])
    del kept, larger
    equal(tidemark_numpy.leaks(), [])


if __name__ == "__main__":
    support.run(globals())
