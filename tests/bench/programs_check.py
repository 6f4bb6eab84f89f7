#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks of bench/programs: programs_check.py PROGRAM RUN_PROGRAMS CASE. Each case is one fact. Inputs are small."""
import json
import re
import shutil
import subprocess
import sys

PROGRAM, SCRIPT, CASE = sys.argv[1:4]
OURS = ["arena", "pool", "synchronized_pool", "planned_arena"]
OF_STD = ["malloc", "std_monotonic", "std_pool", "std_synchronized_pool"]
PRELOADED = {"mimalloc": "libmimalloc.so.2", "mimalloc3": "libmimalloc.so.3", "jemalloc": "libjemalloc", "tcmalloc": "libtcmalloc"}


def expect(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def run(*arguments):
    done = subprocess.run(arguments, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def _programs():
    status, output, errors = run(PROGRAM, "--list")
    expect(status == 0, errors)
    return [json.loads(line)["program"] for line in output.splitlines()]


def benchmarks(pattern):
    """Returns the script's reports of small inputs, by name."""
    status, output, errors = run(sys.executable, SCRIPT, "--small", f"--benchmark_filter={pattern}")
    expect(status == 0, errors)
    return {row["run_name"]: row for row in json.loads(output)["benchmarks"]}


def each_program_computes_the_same_on_every_memory():
    for program in _programs():
        sums = {}
        for memory in OF_STD + OURS:
            status, output, errors = run(PROGRAM, program, memory, "--small")
            expect(status == 0, f"{program} on {memory}: {errors}")
            sums[memory] = json.loads(output)["checksum"]
        expect(len(set(sums.values())) == 1, f"{program}: {sums}")
    expect(len(_programs()) >= 7, f"there are only {_programs()}")


def preloaded_malloc_replaces_the_c_library():
    rows = benchmarks("programs/tape/.*/real_time")
    expect("programs/tape/malloc/real_time" in rows, f"only {list(rows)} ran")
    expect(rows["programs/tape/malloc/real_time"]["malloc"].startswith("libc"), "malloc is not the C library's")
    for memory, file in PRELOADED.items():
        row = rows.get(f"programs/tape/{memory}/real_time")
        print(f"{memory}: {row['malloc'] if row else 'left out: it is not installed'}")
        expect(row is None or file in row["malloc"], f"{memory} did not take the place of malloc")


def a_warm_arena_takes_no_page_and_calls_the_system_for_no_memory():
    faults = {program: json.loads(run(PROGRAM, program, "arena")[1])["faults_per_step"] for program in ("tape", "syntax")}
    expect(max(faults.values()) == 0, f"page faults of a step: {faults}")
    if not shutil.which("strace"):
        print("skipped: system calls: strace is not installed")
        return
    calls = {name: row["system_calls"] for name, row in benchmarks("programs/(tape|syntax)/(arena|malloc)/system_calls").items()}
    expect(len(calls) == 4, f"strace counted only {calls}")
    expect(calls["programs/tape/arena/system_calls"] == calls["programs/syntax/arena/system_calls"] == 0, f"{calls}")


def system_calls_are_counted():
    if not shutil.which("strace"):
        print("skipped: strace is not installed")
        return
    status, output, errors = run(sys.executable, SCRIPT, "--benchmark_filter=programs/gradients/malloc/system_calls")
    expect(status == 0, errors)
    # Five iterations of arrays that malloc maps: at least one mmap and one munmap each.
    expect(json.loads(output)["benchmarks"][0]["system_calls"] >= 10, output)


def reports_the_share_of_time_in_allocation():
    rows = benchmarks("programs/tape/malloc/share")
    expect(all(0 <= row["allocation_share"] <= 1 for row in rows.values()) and len(rows) == 1, f"{rows}")
    share = json.loads(run(PROGRAM, "tape", "malloc", "--share")[1])["allocation_share"]
    expect(0.2 < share <= 1, f"a tape is made of small blocks, and malloc takes {share} of its time")


def the_table_has_a_row_for_each_program():
    status, output, errors = run(sys.executable, SCRIPT, "--table", "--small")
    expect(status == 0, errors)
    rows = re.findall(r"^(\w+) +\d+\.\d+ .* \d+\.\d+ +(\w+) +\d+\.\d+ +(?:\d+\.\d+)?  \d+ -> \d+$", output, re.M)
    expect([row[0] for row in rows] == _programs(), f"{output}")
    expect(all(row[1] in OURS for row in rows), f"{output}")


def reports_an_unknown_name():
    for arguments, named in ((("tapes", "arena"), "tapes"), (("tape", "arenas"), "arenas"), (("tape",), "memory")):
        status, _, errors = run(PROGRAM, *arguments)
        expect(status != 0 and named in errors, f"{arguments}: {status}, {errors}")
    status, _, errors = run(sys.executable, SCRIPT, "--tables")
    expect(status == 2 and "--tables" in errors, f"{status}, {errors}")


globals()[CASE]()
