# SPDX-License-Identifier: Apache-2.0
"""Runs the graph_replay example and checks its output: test_graph_replay.py PROGRAM CASE. Each case is one fact.

The step runs on the device if there is a GPU, and otherwise on the host: see is_replay_capable()."""

import os
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from example import Example, expect, expect_match, options_in

PROGRAM, CASE = sys.argv[1:3]
example = Example("graph_replay", PROGRAM)
TESTED = 360  # images of the data
ROUNDS = 5    # through all batches


def number(name, output):
    return int(expect_match(rf"^{name} +(\d+)", output)[1])


def replays(output):
    return expect_match(r"^is_replay_capable\(\): (true|false),", output)[1] == "true"


def replay_is_as_accurate_as_the_trained_network():
    output = example.output_of()
    trained = float(expect_match(r"recognises ([\d.]+) % of 360 others\.$", output)[1])
    replayed = float(expect_match(r"^same results, to the last bit; test accuracy: ([\d.]+) %$", output)[1])
    expect(f"{trained} >= 95", trained >= 95, True)
    # Training sums in another order, so one or two images between two digits may change sides.
    expect(f"{replayed} is nearly {trained}", abs(replayed - trained) < 0.6, True)


def footprint_equals_the_rehearsed_bytes():
    for batch in (1, 7, 32, 50):
        output = example.output_of("--epochs", "1", "--batch", str(batch))
        wide, narrow = 4 * 128 * batch, 4 * 10 * batch  # bytes of the values between the layers, and of the scores
        in_arena = [(size + 255) // 256 * 256 for size in (wide, narrow)]
        rehearsed = 3 * in_arena[0] + 2 * in_arena[1]
        expect("rehearsed", number("rehearsed", output), rehearsed)
        arena = expect_match(r"^graph arena +(\d+), used up to (\d+)$", output)
        expect("graph arena, and what of it is used", tuple(map(int, arena.groups())), (rehearsed, rehearsed))
        # The wide values on both sides of the activation live until the end; of the others one pair at a
        # time.
        expect("live at once", number("live at once, at most", output), 2 * in_arena[0] + 2 * in_arena[1])
        expect("held by the cache", number("held by the cache of eager", output), 2 * wide + 2 * narrow)


def a_step_has_5_temporaries_and_a_replay_none():
    output = example.output_of("--epochs", "1")
    expect_match(r"^memory of the 5 temporaries in bytes$", output)
    rows = re.findall(r"^(\w+) +([\d.]+) us +([\d.]+)$", output, re.MULTILINE)
    expect("temporaries", [(name, n) for name, _, n in rows],
           [("eager", "5.00"), ("replay", "0.00" if replays(output) else "5.00")])
    for name, microseconds, _ in rows:
        expect(f"{name} takes some time", 0 < float(microseconds) < 1e7, True)
    expect("blocks taken from upstream", expect_match(r"upstream meanwhile: (\d+)$", output)[1], "0")


def accepts_any_batch_size():
    for batch in (1, 7, 32, 36, 360, 361, 1000):
        output = example.output_of("--epochs", "1", "--batch", str(batch))
        batches = (TESTED + batch - 1) // batch
        expect_match(rf"^batches: {batches} of {batch} images; "
                     rf"blank ones that fill the last batch up: {batches * batch - TESTED}$", output)
        expect_match(rf"launch_count\(\): {batches * ROUNDS},", output)
        expect_match(r"^same results, to the last bit", output)


def reports_where_it_runs():
    output = example.output_of("--epochs", "1")
    captured = r"^The step is captured into a CUDA graph, and replayed on the device\.$"
    alone = r"^There is no CUDA device to use \(.+\): the step runs on the host backend\.$"
    expect_match(captured if replays(output) else alone, output)
    hidden = example.output_of("--epochs", "1", env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    expect_match(alone, hidden)
    expect("capable of replay where there is no device", replays(hidden), False)
    # The device's results equal the host's, except for one or two images between two digits.
    accuracies = [float(expect_match(r"test accuracy: ([\d.]+) %$", text)[1]) for text in (output, hidden)]
    expect(f"accuracies {accuracies} are nearly the same", abs(accuracies[0] - accuracies[1]) < 0.6, True)


def full_disk_is_an_error():
    example.expect_full_disk_error("--epochs", "1")


def bad_option_is_one_sentence():
    cases = {
        ("--batch", "0"): "--batch needs a whole number from 1 to 10000, not '0'.",
        ("--batch=10001",): "--batch needs a whole number from 1 to 10000, not '10001'.",
        ("--epochs", "3x"): "--epochs needs a whole number from 1 to 1000, not '3x'.",
        ("--seed", "-1"): f"--seed needs a whole number from 0 to {2**64 - 1}, not '-1'.",
        ("--seed",): "--seed needs a value; see --help.",
        ("--data", "nowhere.csv"): "cannot read nowhere.csv: No such file or directory.",
        ("--allocator", "arena"): "there is no option '--allocator'; see --help.",
        ("32",): "there is no option '32'; see --help."}
    for arguments, sentence in cases.items():
        example.expect_refusal(arguments, sentence)


def help_lists_every_option():
    output = example.output_of("--help")
    expect("first line", output.splitlines()[0], "usage: graph_replay [options]")
    expect("options", options_in(output),
           ["--epochs", "--batch", "--seed", "--data", "--help"])


globals()[CASE]()
