# SPDX-License-Identifier: Apache-2.0
"""Runs the nbody example and checks its output: test_nbody.py PROGRAM CASE. Each case is one fact."""

import functools
import os
import pathlib
import re
import sys
import tempfile
import xml.etree.ElementTree

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from example import Example, expect, options_in

PROGRAM, CASE = sys.argv[1:3]
example = Example("nbody", PROGRAM)
ALWAYS = ["shared_arena", "monotonic", "synchronized_pool", "std_synchronized_pool", "malloc"]
LOADED = ["mimalloc", "jemalloc", "tcmalloc"]  # each is in the table or named in a line as left out
BODIES, STEPS = 3000, 5


def expect_true(what, holds):
    expect(what, bool(holds), True)


@functools.cache
def output_of(threads=2):
    """Returns the output of a small run."""
    status, output, errors = example.run("--bodies", str(BODIES), "--steps", str(STEPS), "--threads", str(threads))
    expect("exit status and errors", (status, errors), (0, ""))
    expect_true("the first line", re.search(f"^{BODIES} bodies, {STEPS} steps, threads: {threads}$", output, re.M))
    return output


def rows(output):
    """Returns for each row of the table: name, times, MiB, hash of positions."""
    return [(name, [float(time) for time in re.findall(r"[\d.]+", times)], float(size), positions)
            for name, times, size, positions in
            re.findall(r"^(\w+) +((?:[\d.]+ ms +){5})([\d.]+) MiB +([0-9a-f]{16})$", output, re.M)]


def numbers(pattern, output):
    found = re.search(pattern, output)
    expect_true(f"'{pattern}' is printed", found)
    return [float(number) for number in found.groups()]


def same_positions_on_every_memory():
    output = output_of()
    found = rows(output)
    names = [name for name, *_ in found]
    expect("memories that are always there", names[:len(ALWAYS)], ALWAYS)
    left_out = re.findall(r"^left out: (\w+): \S", output, re.M)
    expect("memories of other libraries", sorted(names[len(ALWAYS):] + left_out), sorted(LOADED))
    for name, (order, build, forces, drop, whole), size, _ in found:
        expect_true(f"{name}: a step takes as long as its parts", 0 < max(order, build, forces, drop) <= whole)
        expect_true(f"{name}: the process grows by what a tree takes", 0.1 < size < 100)
    expect("hashes of positions", len({positions for *_, positions in found}), 1)


def same_positions_with_any_number_of_threads():
    hashes = {positions for threads in (1, 2, 5) for *_, positions in rows(output_of(threads))}
    expect("hashes of positions", len(hashes), 1)


def forces_match_direct_summation():
    bodies, mean, largest = numbers(r"direct summation, (\d+) bodies: relative error (\S+) mean, (\S+) max", output_of())
    expect("bodies that are compared", bodies, 256)
    expect_true(f"mean error {mean}: some, as sums over cells have, and small", 1e-5 < mean < 0.01)
    expect_true(f"largest error {largest}", mean < largest < 0.1)


def energy_is_conserved():
    first, last, drift = numbers(r"energy: (\S+) at first, (\S+) at last, relative drift at most (\S+)\n", output_of())
    # A Plummer sphere of mass and radius 1 has -3 pi / 64 = -0.1473, less the part that was cut off around
    # it.
    expect_true(f"energy {first}", -0.17 < first < -0.14)
    expect_true(f"drift {drift}", abs(last / first - 1) - 1e-5 <= drift < 1e-3)


def warm_shared_arena_makes_few_system_calls():
    peak, committed, calls = numbers(
        r"shared_arena: (\d+) KiB at the peak, (\d+) KiB committed, (\d+) system calls after the first tree\n", output_of())
    nodes, leaves, tree = numbers(r"tree: (\d+) nodes, (\d+) of them leaves, (\d+) KiB\n", output_of())
    expect_true("leaves hold a few bodies", BODIES / 8 <= leaves < nodes < BODIES)
    expect_true("the arena holds the tree", tree <= min(peak, committed))
    expect_true(f"{calls} system calls: fewer than trees, which all have other sizes", calls <= 2 * STEPS)


def draws_the_bodies():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "cluster.svg")
        status, output, errors = example.run("--bodies", "1000", "--steps", "1", "--picture", path)
        expect("exit status and errors", (status, errors), (0, ""))
        expect_true("the picture is named", f"\npicture: {path}\n" in output)
        paths = xml.etree.ElementTree.parse(path).getroot().findall("{http://www.w3.org/2000/svg}path")
        dots = [dot for path in paths for dot in path.get("d").split("M")[1:]]
        expect_true(f"most of 1000 bodies are in the middle: {len(dots)}", 800 < len(dots) <= 1000)
        for dot in dots:
            x, y = map(float, re.fullmatch(r"([\d.]+) ([\d.]+)h0", dot).groups())
            expect_true(f"dot {dot} is in the picture", 0 <= x <= 800 and 0 <= y <= 800)


def full_disk_is_an_error():
    small = ["--bodies", "100", "--steps", "1"]
    example.expect_full_disk_error(*small)
    for path, reason in {"/dev/full": "No space left on device", "/missing/a.svg": "No such file or directory"}.items():
        status, _, errors = example.run(*small, "--picture", path)
        expect(f"exit status and errors with {path}", (status, errors), (1, f"nbody: shared_arena: {path}: {reason}\n"))


def bad_option_is_one_sentence():
    cases = {
        ("--bodies", "1"): "--bodies needs a whole number from 2 to 10000000, not '1'.",
        ("--bodies=-5",): "--bodies needs a whole number from 2 to 10000000, not '-5'.",
        ("--steps", "0"): "--steps needs a whole number from 1 to 100000, not '0'.",
        ("--threads", "257"): "--threads needs a whole number from 1 to 256, not '257'.",
        ("--threads", "2x"): "--threads needs a whole number from 1 to 256, not '2x'.",
        ("--steps",): "--steps needs a value; see --help.",
        ("--body", "4"): "there is no option '--body'; see --help.",
        ("512",): "there is no option '512'; see --help."}
    for arguments, sentence in cases.items():
        example.expect_refusal(arguments, sentence)


def help_lists_every_option():
    status, output, errors = example.run("--help")
    expect("exit status and errors", (status, errors), (0, ""))
    expect("options", options_in(output), ["--bodies", "--steps", "--threads", "--picture", "--help"])


globals()[CASE]()
