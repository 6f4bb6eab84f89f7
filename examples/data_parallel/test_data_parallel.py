# SPDX-License-Identifier: Apache-2.0
"""Runs the data_parallel example on ranks and compares its output: test_data_parallel.py MPIEXEC PROGRAM CASE."""
import concurrent.futures
import os
import pathlib
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from example import TIMEOUT_SECONDS, expect, expect_match, options_in

MPIEXEC, PROGRAM, CASE = sys.argv[1:4]
# Open MPI needs these if it runs as root and with more ranks than cores. Other MPIs ignore them.
ENVIRONMENT = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                            "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def run(ranks, *arguments, stdout=subprocess.PIPE):
    done = subprocess.run([MPIEXEC, "-n", str(ranks), PROGRAM, *arguments], stdout=stdout, stderr=subprocess.PIPE,
                          text=True, timeout=TIMEOUT_SECONDS, env=ENVIRONMENT)
    return done.returncode, done.stdout, done.stderr


def output_of(ranks, *arguments):
    status, output, errors = run(ranks, *arguments)
    expect("exit status and errors", (status, errors), (0, ""))
    return output


def row(name, output):
    """Returns accuracy, microseconds, registrations (all, per later step), later system calls, bytes."""
    return [float(x) for x in expect_match(
        rf"^{name} +([\d.]+) % +([\d.]+) us +(\d+) +([\d.]+) +(\d+|not counted) +(\d+)$", output).groups()
        if x != "not counted"]


def same_weights_on_1_2_and_4_ranks():
    results = set()
    for ranks in 1, 2, 4:
        output = output_of(ranks, "--epochs", "2", "--seed", "7")
        expect_match(rf"^{ranks} ranks?, batches of 32 in 4 shards, 2 epochs, seed 7$", output)
        results.add(expect_match(
            r"^loss: (\S+)\nweights: ([0-9a-f]{16}), the same on all ranks and in both memories$", output).groups())
    expect(f"number of results, {results}", len(results), 1)
    other = output_of(2, "--epochs", "2", "--seed", "8")
    expect("another seed gives other weights", any(weights in other for _, weights in results), False)


def reaches_095_with_the_default_seed():
    output = output_of(2)
    for name in "planned arena", "malloc":
        accuracy = row(name, output)[0]
        expect(f"{accuracy} >= 95", accuracy >= 95, True)


def registers_once_and_makes_no_further_system_call():
    output = output_of(2, "--epochs", "1")
    _, _, registrations, later, calls, sent = row("planned arena", output)
    expect("registrations, and what later steps do", (registrations, later, calls), (1, 0, 0))
    expect("bytes: a sum for each parameter and the loss", sent, 8 * ((64 + 1) * 128 + (128 + 1) * 10 + 1))
    _, _, registrations, later, _ = row("malloc", output)
    expect("registrations of what malloc gave: one a step", (registrations, later), (1437 // 32, 1))


def wrong_numbers_of_ranks_are_one_sentence():
    status, output, errors = run(3)
    expect("exit status is one of misuse", status != 0, True)
    expect("output", output.count("weights"), 0)
    sentence = "data_parallel: a batch has 4 shards, so there can be 1, 2 or 4 ranks, not 3.\n"
    expect("the sentence, once", errors.count(sentence), 1)


def bad_option_is_one_sentence():
    sentences = {
        ("--batch", "30"): "--batch needs a multiple of 4 from 4 to 1000, not 30.",
        ("--epochs", "0"): "--epochs needs a whole number from 1 to 1000, not '0'.",
        ("--ranks", "2"): "there is no option '--ranks'; see --help.",
        ("--data", "/missing.csv"): "cannot read /missing.csv: No such file or directory."}
    with concurrent.futures.ThreadPoolExecutor() as at_once:  # each waits seconds for MPI to end a failed job
        results = at_once.map(lambda arguments: run(2, *arguments), sentences)
    for (arguments, sentence), (status, output, errors) in zip(sentences.items(), results):
        expect(f"exit status of {arguments} is one of misuse", status != 0, True)
        expect(f"the sentence for {arguments}, once", errors.count(f"data_parallel: {sentence}\n"), 1)


def error_on_one_rank_ends_all_ranks():
    done = subprocess.run([MPIEXEC, "-n", "1", PROGRAM, "--epochs", "1", ":", "-n", "1", PROGRAM, "--data", "/missing.csv"],
                          capture_output=True, text=True, timeout=60, env=ENVIRONMENT)
    expect("exit status is one of misuse", done.returncode != 0, True)
    expect("the sentence, once",
           done.stderr.count("data_parallel: cannot read /missing.csv: No such file or directory.\n"), 1)


def full_disk_is_an_error():
    done = subprocess.run([PROGRAM, "--epochs", "1"], stdout=open("/dev/full", "w"), stderr=subprocess.PIPE, text=True,
                          timeout=TIMEOUT_SECONDS, env=ENVIRONMENT)
    expect("exit status", done.returncode != 0, True)
    expect("the sentence, once", done.stderr.count("data_parallel: cannot write the output.\n"), 1)


def help_lists_every_option():
    output = output_of(1, "--help")
    expect("options", options_in(output), ["--epochs", "--batch", "--seed", "--data", "--help"])


globals()[CASE]()
