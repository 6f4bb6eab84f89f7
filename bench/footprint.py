# SPDX-License-Identifier: Apache-2.0
"""Runs trace_footprint: the most memory that a process has while an allocator plays a trace, over what is live at most.

It prints nothing. A trace or allocator that cannot be measured is a RuntimeError, whose text is one sentence.
"""
import json
import subprocess


def run(program, environment, *arguments):
    """What the program prints."""
    done = subprocess.run([program, *arguments], capture_output=True, text=True, errors="surrogateescape",
                          env=environment)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"trace_footprint {' '.join(arguments)} ended with {done.returncode}")
    return done.stdout


def allocators(program, environment=None):
    """The names of those that are there: ours and the peers."""
    return run(program, environment, "--list").split()


def traces(program, environment=None):
    """The traces that have names: a list of {"name", "threads", "operations", "peak_live_bytes"}.

    They are the recorded ones and those of TIDEMARK_BENCH_TRACES in the environment. Each is read, so that one that is
    malformed is reported before anything is measured.
    """
    return [json.loads(line) for line in run(program, environment, "--traces").splitlines()]


def rows(program, environment=None, some_allocators=None, some_traces=None):
    """One a pair: {"allocator", "trace", "peak_live_bytes", "peak_footprint_bytes", "over_peak", "samples"}.

    `over_peak` is None for a trace without bytes.
    """
    if some_allocators is None:
        some_allocators = allocators(program, environment)
    if some_traces is None:
        some_traces = [trace["name"] for trace in traces(program, environment)]
    return [json.loads(run(program, environment, allocator, trace)) for trace in some_traces
            for allocator in some_allocators]


def measure(program, names, environment=None, repetitions=3):
    """Values of `over_peak`, by names such as "pool/footprint/torch_gpt". Names of what is not there are left out.

    One of each run, because an allocator that gives memory back after some time takes a little more or less.
    """
    known = [trace["name"] for trace in traces(program, environment) if trace["peak_live_bytes"] > 0]
    pairs = {f"{allocator}/footprint/{trace}": (allocator, trace)
             for trace in known for allocator in allocators(program, environment)}
    found = {}
    for name, (allocator, trace) in pairs.items():
        if name in names:
            found[name] = [row["over_peak"] for row in rows(program, environment, [allocator] * repetitions, [trace])]
    return found
