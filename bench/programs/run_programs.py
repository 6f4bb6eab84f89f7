#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs each program of this folder with each allocator, one process each. `mimalloc` is preloaded as malloc.

usage: run_programs_bench --table [--small]
           prints one table, of a few steps of each program
       run_programs_bench --benchmark_filter=REGEX [--small]
           prints results in the format of Google Benchmark:
           programs/PROGRAM/MEMORY/real_time     time of a step, with page faults and the process's peak memory
           programs/PROGRAM/MEMORY/share         share of the time that is allocation
           programs/PROGRAM/MEMORY/system_calls  system calls for memory in a step, counted by strace
"""
import argparse
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PROGRAM = pathlib.Path(__file__).resolve().parent / "tidemark_programs"
PRELOADED = {"mimalloc": "libmimalloc.so.2", "mimalloc3": os.environ.get("TIDEMARK_MIMALLOC_3", "libmimalloc.so.3"),
             "jemalloc": "libjemalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4"}
MALLOCS = ["malloc", *PRELOADED]
OF_STD = ["std_monotonic", "std_pool", "std_synchronized_pool"]
MEMORY_CALLS = "brk,mmap,munmap,mremap,mprotect,madvise"


class failure(Exception):
    """One sentence that ends the script."""


def started(command, **more):
    try:
        return subprocess.run(command, capture_output=True, text=True, **more)
    except OSError as error:
        raise failure(f"{command[0]} cannot be started: {error.strerror}") from None


@functools.cache
def programs():
    """Returns the programs by name: {"program", "work", "ours", "other"}."""
    return {row["program"]: row for row in map(json.loads, started([PROGRAM, "--list"]).stdout.splitlines())}


def run(program, memory, *options, wrapped=()):
    """Returns the program's output, or None if the allocator is not installed."""
    preload = PRELOADED.get(memory, "")
    arguments = [PROGRAM, program, "malloc" if preload else memory, *options]
    if wrapped:  # strace sets it for the program alone
        done = started([*wrapped, f"--env=LD_PRELOAD={preload}", *arguments])
    else:
        done = started(arguments, env=os.environ | {"LD_PRELOAD": preload})
    if done.returncode != 0:
        raise failure(f"{program} on {memory} failed: {done.stderr.strip()}")
    result = json.loads(done.stdout)
    return result if not preload or pathlib.Path(preload).name in result["malloc"] else None


def system_calls(program, memory, *options):
    """Returns the system calls for memory per step, or None if strace cannot be used."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "calls"
        wrapped = ["strace", "-f", "-qq", f"--trace={MEMORY_CALLS},getppid", f"--output={log}"]
        result = run(program, memory, *options, wrapped=wrapped)
        if result is None:
            return None
        # The program marks the beginning and the end of the measured steps by a call that it makes nowhere
        # else.
        measured = log.read_text().split("getppid(")[1]
    calls = len(re.findall(rf"^\d+ +(?:{MEMORY_CALLS.replace(',', '|')})\(", measured, re.M))
    return calls / result["steps"]


# ---- for compare.py ----------------------------------------------------------------------------------------

def benchmarks():
    """Yields name, program, memory and measured quantity of all available combinations."""
    for program, row in programs().items():
        of_ours = {row["ours"], row["other"], "arena", "pool"}
        for memory in [*MALLOCS, *OF_STD, *sorted(of_ours)]:
            for measured in "real_time", "share", "system_calls":
                yield f"programs/{program}/{memory}/{measured}", program, memory, measured


def measure(name, program, memory, measured, options):
    if measured == "system_calls":
        calls = system_calls(program, memory, *options)
        return calls is not None and {"system_calls": calls, "cpu_time": 0}
    result = run(program, memory, *options, *["--share"] * (measured == "share"))
    return result and result | {"cpu_time": 1e9 * result["seconds_per_step"], "faults": result["faults_per_step"],
                              "peak_mib": result["peak_bytes"] / 2**20}


def print_benchmarks(pattern, options):
    rows, sums = [], {}
    for name, program, memory, measured in benchmarks():
        if not re.search(pattern, name) or (measured == "system_calls" and not shutil.which("strace")):
            continue
        row = measure(name, program, memory, measured, options)
        if not row:
            continue
        if measured == "real_time" and sums.setdefault(program, row["checksum"]) != row["checksum"]:
            raise failure(f"{program} computes {row['checksum']} on {memory}, and {sums[program]} on another memory")
        rows.append({"run_name": name, **row})
    print(json.dumps({"context": {}, "benchmarks": rows}))


# ---- for people --------------------------------------------------------------------------------------------

def best_of_two(program, size):
    """Returns milliseconds per step and peak MB by memory, interleaved so that all memories meet the same
    load."""
    runs = {}
    for _ in range(2):
        for memory in [*MALLOCS, programs()[program]["ours"]]:
            result = run(program, memory, size)
            if result:
                runs.setdefault(memory, []).append(result)
    if len({result["checksum"] for results in runs.values() for result in results}) != 1:
        raise failure(f"{program} computes different results on different memory")
    return {memory: (min(1e3 * result["seconds_per_step"] for result in results),
                     max(result["peak_bytes"] for result in results) / 1e6) for memory, results in runs.items()}


def print_table(size):
    print(f"{'a step, in ms':13} {'malloc':>8} {'the best other malloc':>23} {'tidemark':>16} {'times as fast as':>19}"
          f"  {'peak MB':>11}\n{'':13} {'':>8} {'':>23} {'':>16} {'malloc':>9} {'best':>9}  malloc -> ours")
    for program, row in programs().items():
        of = best_of_two(program, size)
        best = min((memory for memory in of if memory in PRELOADED), key=lambda memory: of[memory][0], default=None)
        own, own_peak = of[row["ours"]]
        peer = f"{of[best][0]:.2f} on {best}" if best else "none is installed"
        times = f"{of[best][0] / own:.2f}" if best else ""
        print(f"{program:13} {of['malloc'][0]:8.2f} {peer:>23} {own:8.2f} {row['ours']:>7} {of['malloc'][0] / own:9.2f} {times:>9}"
              f"  {of['malloc'][1]:.0f} -> {own_peak:.0f}")
    print("The same code and the same result on each. docs/benchmarks.md, \"Programs\", has more peers.")


def main():
    parser = argparse.ArgumentParser(prog="run_programs_bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--benchmark_filter", default="", help=argparse.SUPPRESS)
    parser.add_argument("--benchmark_list_tests", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--small", action="store_true", help="little input, to see that all runs")
    parser.add_argument("--table", action="store_true", help="print one table")
    options, others = parser.parse_known_args()
    wrong = [other for other in others if not other.startswith("--benchmark_")]  # of repetitions, which are compare.py's
    if wrong:
        parser.error(f"there is no option {wrong[0]}")
    if options.table:
        print_table("--small" if options.small else "--short")
    elif options.benchmark_list_tests:
        print("\n".join(name for name, *_ in benchmarks()))
    else:
        print_benchmarks(options.benchmark_filter, ["--small" if options.small else "--short"])


if __name__ == "__main__":
    try:
        main()
    except failure as error:
        sys.exit(str(error))
