# SPDX-License-Identifier: Apache-2.0
"""Runs the pool_replay example and checks its output: test_pool_replay.py PROGRAM CASE. Each case is one fact."""

import os
import pathlib
import re
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from example import Example, expect

PROGRAM, CASE = sys.argv[1:3]
example = Example("pool_replay", PROGRAM)


def plays_the_recorded_traces_on_every_pool():
    status, output, errors = example.run()
    expect("stderr", errors, "")
    expect("exit status", status, 0)
    # Known facts of the traces: allocations, frees, threads, and the number of ways to replay each.
    known = {"clang_syntax.csv": ("1 thread", 199_400, 6), "lld_link.csv": ("5 threads", 20_480, 9),
             "torch_gpt.csv": ("1 thread", 9_834, 6), "torch_mlp.csv": ("1 thread", 2_562, 6)}
    parts = re.split(r"^(\S+\.csv): ", output, flags=re.MULTILINE)
    expect("traces", parts[1::2], list(known))
    for name, text in zip(parts[1::2], parts[2::2]):
        threads, events, ways = known[name]
        allocations, frees = map(int, re.match(r"(\d+) allocations, (\d+) frees, ", text).groups())
        expect(f"events of {name}", allocations + frees, events)
        expect(f"threads of {name}", threads in text.splitlines()[0], True)
        rows = re.findall(r"^  (\S.*?)  +([\d.]+) +(\d+|-) +(-?[\d.]+|-)$", text, re.MULTILINE)
        expect(f"rows of {name}", len(rows), ways)
        expect(f"rows of {name} without memory", sum(peak == "-" for _, _, peak, _ in rows), ways - 6)
        live = int(re.search(r"peak (\d+) KiB live", text)[1])
        for who, nanoseconds, peak, waste in rows:
            expect(f"{name}, {who}: takes some time", 0 < float(nanoseconds) < 1e6, True)
            if peak == "-":
                continue
            expect(f"{name}, {who}: holds what is live", int(peak) >= live - 1, True)
            expect(f"{name}, {who}: waste", abs(float(waste) - 100 * (int(peak) / live - 1)) < 1, True)


def malformed_trace_names_file_line_and_reason():
    # tests/telemetry/trace/readers.py tests the reader's errors. This test checks that an error reaches the
    # user.
    cases = {"op,id,bytes\n": ":1: the header is 'op,id,bytes', not op,id,bytes,thread",
             "op,id,bytes,thread\na,0,8,0\nf,0,0,0\nf,0,0,0\n": ":4: block 0 is freed twice; first by event 1"}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.csv")
        for text, reason in cases.items():
            with open(path, "w") as file:
                file.write(text)
            status, _, errors = example.run(path)
            expect("stderr", errors, f"pool_replay: {path}{reason}\n")
            expect("exit status", status, 2)


def traces_of_too_many_threads_are_played_on_one():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.csv")
        with open(path, "w") as file:
            file.write("op,id,bytes,thread\n" + "".join(f"a,{i},8,{10 * i}\n" for i in range(1025)))
        status, output, errors = example.run(path)
        expect("stderr and exit status", (errors, status), ("", 0))
        expect("the sentence", "\n  played on one thread only: more than 1024 are not started\n" in output, True)
        expect("rows with threads", "on 1025 threads" in output, False)


def missing_file_is_one_sentence():
    example.expect_refusal(["missing.csv"], "missing.csv: No such file or directory")


globals()[CASE]()
