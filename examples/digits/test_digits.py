# SPDX-License-Identifier: Apache-2.0
"""Runs the digits example and compares its output: test_digits.py PROGRAM DATA CASE. Each case is one fact."""

import os
import pathlib
import pty
import re
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from example import TIMEOUT_SECONDS, Example, expect, expect_match, options_in

PROGRAM, DATA, CASE = sys.argv[1:4]
example = Example("digits", PROGRAM)
ALLOCATORS = ("arena", "malloc", "monotonic", "epoch_resource", "planned")


def reaches_095_with_the_default_seed():
    status, output, errors = example.run("--allocator", "arena")
    expect("exit status", (status, errors), (0, ""))
    epochs = re.findall(r"^epoch +(\d+)/20   loss \d\.\d{6}   test accuracy +[\d.]+ %", output, re.MULTILINE)
    expect("epochs", epochs, [str(i) for i in range(1, 21)])
    accuracy = float(expect_match(r"^test accuracy: ([\d.]+) %$", output).group(1))
    expect(f"{accuracy} >= 95", accuracy >= 95, True)
    for arena in ("images", "permanent", "step", "scratch"):
        used, peak, committed, reserved, calls, late = map(int, expect_match(
            rf"^{arena} +(\d+) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+)$", output).groups())
        expect(f"{arena}: used <= peak <= committed <= reserved", used <= peak <= committed <= reserved, True)
        expect(f"{arena}: memory was taken", peak > 0 and calls > 0, True)
        expect(f"{arena}: system calls after the first epoch", late, 0)
    expect_match(r"^step +0 ", output)
    expect_match(r"^system calls after the first epoch: 0$", output)


def same_result_on_every_allocator():
    for optimizer in ("sgd", "adam"):
        common = ("--epochs", "2", "--optimizer", optimizer, "--batch", "100", "--seed", "7")
        results = set()
        for allocator in ALLOCATORS:
            status, output, errors = example.run(*common, "--allocator", allocator)
            expect("exit status", (status, errors), (0, ""))
            expect("comparison with one allocator", "same training" in output, False)
            results.add(expect_match(r"^test accuracy: .*\nloss: .*$", output).group(0))
        expect(f"number of results of {optimizer}", len(results), 1)
    status, output, errors = example.run("--epochs", "1")
    expect("exit status", (status, errors), (0, ""))
    for allocator in ALLOCATORS:
        expect_match(rf"^{allocator} +[\d.]+ us +[\d.]+ x +[\d.]+ us +[\d.]+ ns +[\d.]+ x +[\d.]+ KiB$", output)
    expect_match(r"^blocks of the epochs: [1-9]\d* allocated, 0 freed, [1-9]\d* reclaimed, 57 promoted$", output)
    expect("the end", output.endswith("\nsame result on all five, to the last bit\n"), True)


def epoch_keeps_only_the_result_of_its_step():
    status, output, errors = example.run("--epochs", "2", "--allocator", "epoch_resource")
    expect("exit status", (status, errors), (0, ""))
    counts = expect_match(r"^blocks of the epochs: (\d+) allocated, (\d+) freed, (\d+) reclaimed, (\d+) promoted$", output)
    # In each pass 45 steps train and 12 test. They have a tape, 20 or 11 blocks on it, and the result.
    steps, blocks = 2 * (45 + 12), 2 * (45 * 22 + 12 * 13)
    expect("blocks", tuple(map(int, counts.groups())), (blocks, 0, blocks - steps, steps))


def all_steps_but_the_first_of_each_kind_run_by_its_plan():
    status, output, errors = example.run("--epochs", "2", "--allocator", "planned")
    expect("exit status", (status, errors), (0, ""))
    counts = expect_match(r"^steps by plans: (\d+) of (\d+); blocks: (\d+) planned, (\d+) from malloc; plans made: (\d+)$", output)
    planned_steps, steps, planned, fallback, made = map(int, counts.groups())
    # In each pass 45 steps train with 20 blocks, and 12 test with 11. The first step of each kind is
    # recorded. The last step of each kind has fewer images, and its requests fit too.
    expect("steps", (steps, planned_steps, made), (2 * (45 + 12), 2 * (45 + 12) - 2, 2))
    expect("blocks", (planned + fallback, fallback), (2 * (45 * 20 + 12 * 11), 20 + 11))


def prints_a_bar_on_a_terminal():
    inner, outer = pty.openpty()
    done = subprocess.Popen([PROGRAM, "--epochs", "2", "--allocator", "arena"], stdout=outer)
    os.close(outer)
    shown = b""
    try:
        while block := os.read(inner, 4096):
            shown += block
    except OSError:  # Linux reports a closed peer this way
        pass
    expect("exit status", done.wait(TIMEOUT_SECONDS), 0)
    half, whole = (b"\r[" + bar + b"] epoch    %d/2 " for bar in (b"#" * 15 + b"." * 15, b"#" * 30))
    expect("bars", (shown.count(half % 1), shown.count(whole % 2)), (1, 1))


def full_disk_is_an_error():
    example.expect_full_disk_error("--epochs", "1", "--allocator", "arena")


def missing_file_is_one_sentence():
    example.expect_refusal(("--data", "nowhere/digits.csv"), "cannot read nowhere/digits.csv: No such file or directory.")
    with tempfile.TemporaryDirectory() as folder:
        example.expect_refusal(("--data", folder), f"cannot read {folder}: Is a directory.")


def malformed_csv_names_file_line_and_column():
    with open(DATA, encoding="ascii") as file:
        good = file.read().splitlines()[:3]
    zeros = "0," * 64  # a blank image without its label; field n begins in column 2n - 1
    mistakes = (
        ([*good, "0,0,x,0," + "0," * 60 + "1"], 4, 5, "pixel 3 is 'x', not a whole number from 0 to 16"),
        ([good[0], "17," + "0," * 63 + "1"], 2, 1, "pixel 1 is '17', not a whole number from 0 to 16"),
        (["0,-1," + "0," * 62 + "1"], 1, 3, "pixel 2 is '-1', not a whole number from 0 to 16"),
        (["0,1.5," + "0," * 62 + "1"], 1, 3, "pixel 2 is '1.5', not a whole number from 0 to 16"),
        (["0,\x1b[31m," + "0," * 62 + "1"], 1, 3, "pixel 2 is '?[31m', not a whole number from 0 to 16"),
        ([zeros + "10"], 1, 129, "the label is '10', not a whole number from 0 to 9"),
        ([zeros], 1, 129, "the label is '', not a whole number from 0 to 9"),
        ([zeros[:-1]], 1, 128, "the line ends where the label should be"),
        ([zeros + "1,1"], 1, 130, "the line goes on after the label"),
        ([good[0], "", good[1]], 2, 1, "pixel 1 is '', not a whole number from 0 to 16"),
        ([], 1, 1, "the file ends here, and at least 2 images are needed"),
        ([good[0]], 2, 1, "the file ends here, and at least 2 images are needed"),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "bad.csv")
        for lines, line, column, mistake in mistakes:
            with open(path, "w", encoding="ascii", newline="") as file:
                file.writelines(text + "\n" for text in lines)
            example.expect_refusal(("--data", path), f"{path}, line {line}, column {column}: {mistake}.")
        with open(path, "w", encoding="ascii", newline="") as file:
            file.write("\r\n".join(good))  # other line ends, or none at the last line, are valid
        status, output, errors = example.run("--data", path, "--epochs", "1", "--allocator", "arena")
        expect("a file with other line ends", (status, errors), (0, ""))
        expect_match(r" 2 images .* 1 others", output)


def bad_option_is_one_sentence():
    example.expect_refusal(("--colour",), "there is no option '--colour'; see --help.")
    example.expect_refusal(("-x",), "there is no option '-x'; see --help.")
    example.expect_refusal(("more",), "there is no option 'more'; see --help.")
    example.expect_refusal(("--epochs", "2", "more"), "there is no option 'more'; see --help.")
    example.expect_refusal(("--help=3",), "there is no option '--help=3'; see --help.")
    example.expect_refusal(("--epochs",), "--epochs needs a value; see --help.")
    for text in ("0", "1001", "x", "3x", "-1", "", "99999999999999999999"):
        example.expect_refusal(("--epochs", text), f"--epochs needs a whole number from 1 to 1000, not '{text}'.")
    example.expect_refusal(("--batch=0",), "--batch needs a whole number from 1 to 10000, not '0'.")
    example.expect_refusal(("--seed", "1.5"), f"--seed needs a whole number from 0 to {2**64 - 1}, not '1.5'.")
    example.expect_refusal(("--allocator", "pool"), "--allocator needs arena, malloc, monotonic, epoch_resource or planned, not 'pool'.")
    example.expect_refusal(("--optimizer", "SGD"), "--optimizer needs sgd or adam, not 'SGD'.")


def help_lists_every_option():
    status, output, errors = example.run("--help")
    expect("exit status", (status, errors), (0, ""))
    expect("first line", output.splitlines()[0], "usage: digits [options]")
    expect("options", options_in(output),
           ["--allocator", "--optimizer", "--epochs", "--batch", "--seed", "--data", "--help"])
    expect("the other form", example.run("-h"), (status, output, errors))


def random_seed_is_printed_and_can_be_used_again():
    common = ("--epochs", "1", "--allocator", "arena", "--seed")
    seeds, results = [], []
    for _ in range(2):
        output = example.run(*common, "random")[1]
        seeds.append(expect_match(r", seed (\d+)\.$", output).group(1))
        results.append(expect_match(r"^loss: .*$", output).group(0))
    expect(f"two random seeds, {seeds}, differ", seeds[0] != seeds[1], True)
    expect("loss with the first seed again", results[0] in example.run(*common, seeds[0])[1], True)


globals()[CASE]()
