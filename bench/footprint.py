# SPDX-License-Identifier: Apache-2.0
"""Runs trace_footprint: the maximum memory of a process while an allocator plays a trace, over the maximum
live bytes.

It prints nothing. A trace or allocator that cannot be measured raises a RuntimeError with one sentence.
"""
import json
import subprocess


def run(program, environment, *arguments):
    """Returns the output of the program."""
    done = subprocess.run([program, *arguments], capture_output=True, text=True, errors="surrogateescape",
                          env=environment)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"trace_footprint {' '.join(arguments)} ended with {done.returncode}")
    return done.stdout


def allocators(program, environment=None):
    """Returns the names of the available allocators, tidemark's and the peers'."""
    return run(program, environment, "--list").split()


def traces(program, environment=None):
    """Returns the named traces as a list of {"name", "threads", "operations", "steps", "peak_live_bytes"}.

    These are the recorded traces and those of TIDEMARK_BENCH_TRACES in the environment. Each is read, so that
    a malformed trace is reported before any measurement.
    """
    return [json.loads(line) for line in run(program, environment, "--traces").splitlines()]


def rows(program, environment=None, some_allocators=None, some_traces=None):
    """Returns a row per pair: {"allocator", "trace", "peak_live_bytes", "peak_footprint_bytes", "over_peak",
    "samples"}.

    `over_peak` is None for a trace without bytes.
    """
    if some_allocators is None:
        some_allocators = allocators(program, environment)
    if some_traces is None:
        some_traces = [trace["name"] for trace in traces(program, environment)]
    return [json.loads(run(program, environment, allocator, trace)) for trace in some_traces
            for allocator in some_allocators]


def measure(program, names, environment=None, repetitions=3):
    """Returns values of `over_peak` by names such as "pool/footprint/torch_gpt". Omits names that are not
    available.

    Each run has a value, because results vary slightly if an allocator returns memory after a delay.
    """
    known = [trace["name"] for trace in traces(program, environment) if trace["peak_live_bytes"] > 0]
    pairs = {f"{allocator}/footprint/{trace}": (allocator, trace)
             for trace in known for allocator in allocators(program, environment)}
    found = {}
    for name, (allocator, trace) in pairs.items():
        if name in names:
            found[name] = [row["over_peak"] for row in rows(program, environment, [allocator] * repetitions, [trace])]
    return found
