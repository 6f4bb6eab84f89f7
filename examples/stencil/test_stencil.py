# SPDX-License-Identifier: Apache-2.0
"""Runs the stencil example and checks its output: test_stencil.py PROGRAM CASE. Each case is one fact."""

import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from example import Example, expect, options_in

PROGRAM, CASE = sys.argv[1:3]
example = Example("stencil", PROGRAM)
SOURCES = ["workspace", "vector", "monotonic"]


def rows(size, iterations):
    """Returns for each row of the table: name, microseconds, allocations, residual. Also the text below."""
    status, output, errors = example.run("--size", str(size), "--iterations", str(iterations))
    expect("exit status and errors", (status, errors), (0, ""))
    expect("first line", output.splitlines()[0], f"{size} x {size} unknowns, {iterations} iterations")
    found = re.findall(r"^(\w+) +([\d.]+) us +([\d.]+)   (\S+)$", output, re.MULTILINE)
    expect("rows", [row[0] for row in found], SOURCES)
    return found, output


def same_residual_to_the_last_digit():
    found, _ = rows(64, 20)
    residuals = {residual for _, _, _, residual in found}
    expect("number of residuals", len(residuals), 1)
    # Computed separately with sums in another order, so it differs in the last digits.
    expect("residual", abs(float(residuals.pop()) / solve(64, 20) - 1) < 1e-9, True)


def solve(n, iterations):
    """Computes the norm of the last residual in plain Python."""
    from math import sin, sqrt

    def image(x):
        def at(row, column):
            return x[row * n + column] if 0 <= row < n and 0 <= column < n else 0.0
        return [4 * x[i * n + j] - at(i, j - 1) - at(i, j + 1) - at(i - 1, j) - at(i + 1, j)
                for i in range(n) for j in range(n)]

    def dot(x, y):
        return sum(a * b for a, b in zip(x, y))

    r = [1 + 0.5 * sin(0.1 * i) for i in range(n * n)]
    p, rho = [0.0] * (n * n), 0.0
    for _ in range(iterations):
        z = [0.2 * a for a in r]
        z = [a + 0.2 * (b - c) for a, b, c in zip(z, r, image(z))]
        before, rho = rho, dot(r, z)
        beta = rho / before if before else 0.0
        p = [a + beta * b for a, b in zip(z, p)]
        q = image(p)
        alpha = rho / dot(p, q)
        r = [a - alpha * b for a, b in zip(r, q)]
    return sqrt(dot(r, r))


def warm_workspace_allocates_nothing():
    found, output = rows(64, 20)
    expect("allocations of the workspace", found[0][2], "0.00")
    # Two arrays of a step, one of the preconditioner, and two of apply on top.
    sentence = r"^the workspace asked its upstream (\d+) times in all: (\d+) slots, (\d+) KiB$"
    calls, slots, kib = map(int, re.search(sentence, output, re.MULTILINE).groups())
    expect("slots and KiB", (slots, kib), (5, 97))
    fewer, output = rows(64, 2)
    expect("calls of the upstream in 2 iterations, and in 20",
           int(re.search(sentence, output, re.MULTILINE)[1]), calls)
    expect("allocations of the workspace in 2 iterations", fewer[0][2], "0.00")


def other_memories_allocate_in_each_iteration():
    found, _ = rows(64, 20)
    expect("allocations of std::vector: one for each array", found[1][2], "10.00")
    expect("the monotonic buffer begins anew in each iteration", float(found[2][2]) >= 1, True)
    for name, microseconds, _, _ in found:
        expect(f"{name} takes some time", 0 < float(microseconds) < 1e7, True)


def accepts_any_size():
    for size in (2, 3, 33):
        rows(size, 2)


def full_disk_is_an_error():
    example.expect_full_disk_error("--size", "8", "--iterations", "2")


def bad_option_is_one_sentence():
    cases = {
        ("--size", "1"): "--size needs a whole number from 2 to 4096, not '1'.",
        ("--size=4097",): "--size needs a whole number from 2 to 4096, not '4097'.",
        ("--size", "-5"): "--size needs a whole number from 2 to 4096, not '-5'.",
        ("--iterations", "1"): "--iterations needs a whole number from 2 to 100000, not '1'.",
        ("--iterations", "2x"): "--iterations needs a whole number from 2 to 100000, not '2x'.",
        ("--iterations", ""): "--iterations needs a whole number from 2 to 100000, not ''.",
        ("--iterations",): "--iterations needs a value; see --help.",
        ("--sise", "4"): "there is no option '--sise'; see --help.",
        ("512",): "there is no option '512'; see --help."}
    for arguments, sentence in cases.items():
        example.expect_refusal(arguments, sentence)


def help_lists_every_option():
    status, output, errors = example.run("--help")
    expect("exit status and errors", (status, errors), (0, ""))
    expect("options", options_in(output), ["--size", "--iterations", "--help"])


globals()[CASE]()
