# SPDX-License-Identifier: Apache-2.0
"""Runs the thrust_vectors example and checks its output: test_thrust_vectors.py PROGRAM DATA CASE. Each case is
one fact. A program for a device ends at once if there is no device; cases that need its results are then skipped."""

import os
import pathlib
import re
import struct
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from example import Example, expect, expect_match, options_in

PROGRAM, DATA, CASE = sys.argv[1:4]
example = Example("thrust_vectors", PROGRAM)
SKIPPED = 77
NO_DEVICE = r"thrust_vectors: there is no CUDA device to use \(.+\), and nvcc built this for one\.\n"


def skip_without_device(result):
    status, output, errors = result
    if status == 1 and re.fullmatch(NO_DEVICE, errors):
        print(f"skipped: {errors}", end="")
        sys.exit(SKIPPED)


def output_of(*arguments):
    result = example.run(*arguments)
    skip_without_device(result)
    expect(f"exit status and errors of {arguments}", (result[0], result[2]), (0, ""))
    return result[1]


def results_of(*arguments):
    """Returns for each row of the table: iterations, inertia, purity, system allocations of the first
    iteration, and of each later one. Also returns the output."""
    output = output_of(*arguments)
    found = re.findall(r"^(Thrust alone|with tidemark) +(\d+) +([\d.]+) +([\d.]+) % +(\d+) +([\d.]+)$", output,
                       re.MULTILINE)
    expect("rows", [row[0] for row in found], ["Thrust alone", "with tidemark"])
    expect("results of both", found[0][1:4], found[1][1:4])
    expect_match(r"^same clusters and centroids, to the last bit$", output)
    return [(int(n), float(inertia), float(purity), int(first), float(later))
            for _, n, inertia, purity, first, later in found], output


def first_images(output):
    return [int(image) for image in expect_match(r"^first centroids: images((?: \d+)+)$", output)[1].split()]


def number(name, output):
    return int(expect_match(rf"^{name} +(\d+)$", output)[1])


def file_of(lines):
    file = tempfile.NamedTemporaryFile("w", suffix=".csv")
    file.write("".join(lines))
    file.flush()
    return file


def k_means(lines, centroids, iterations_max):
    """Computes iterations, inertia and purity in plain Python. The centroids are given as image numbers."""
    rows = [[int(field) for field in line.split(",")] for line in lines]
    images, labels = [[x / 16 for x in row[:-1]] for row in rows], [row[-1] for row in rows]
    centroids, clusters, iterations = [images[i] for i in centroids], None, 0
    while iterations < iterations_max:
        iterations, before = iterations + 1, clusters
        distances = [[sum((a - b) ** 2 for a, b in zip(image, centroid)) for centroid in centroids] for image in images]
        clusters = [min(range(len(centroids)), key=row.__getitem__) for row in distances]
        if clusters == before:
            break
        inside = [[image for image, c in zip(images, clusters) if c == cluster] for cluster in range(len(centroids))]
        # The program's centroids have 32 bits.
        centroids = [[struct.unpack("f", struct.pack("f", sum(x) / len(some)))[0] for x in zip(*some)] if some else old
                     for some, old in zip(inside, centroids)]
    right = 0
    for cluster in set(clusters):
        found = [label for label, c in zip(labels, clusters) if c == cluster]
        right += max(map(found.count, found))
    return iterations, sum(map(min, distances)), 100 * right / len(images)


def expect_as_computed_apart(lines, *options, iterations_max=100):
    with file_of(lines) as file:
        (_, (iterations, inertia, purity, _, _)), output = results_of("--data", file.name, *options)
    known = k_means(lines, first_images(output), iterations_max)
    expect(f"iterations and purity with {options}", (iterations, purity), (known[0], round(known[2], 2)))
    expect(f"inertia {inertia} is nearly {known[1]}", abs(inertia - known[1]) <= 1e-5 * known[1] + 1e-6, True)
    return output


def some_lines(count):
    with open(DATA) as file:
        return file.readlines()[:count]


def finds_digits_without_their_labels():
    (_, (_, inertia, purity, _, _)), output = results_of()
    expect_match(r"^images: 1797, clusters: 10, seed: 1; k-means runs on the (host|device)$", output)
    expect(f"purity {purity} >= 70", purity >= 70, True)
    (_, (_, finer, purity, _, _)), _ = results_of("--clusters", "40")
    expect(f"purity {purity} >= 90", purity >= 90, True)
    expect(f"inertia {finer} of 40 clusters < {inertia} of 10", finer < inertia, True)


def agrees_with_an_independent_computation():
    expect_as_computed_apart(some_lines(150))
    expect_as_computed_apart(some_lines(150), "--clusters", "3", "--seed", "7")


def warm_iterations_allocate_nothing():
    (alone, ours), output = results_of()
    expect(f"several iterations: {ours[0]}", ours[0] > 5, True)
    # Eight vectors, and the temporaries of algorithms: on the host the two of the sort, on a device more.
    host = "runs on the host" in output
    expect(f"allocations of Thrust alone, {alone[3:]}", min(alone[3:]) == max(alone[3:]) == 10 or not host, True)
    expect(f"allocations of Thrust alone, {alone[3:]}, >= 9", min(alone[3:]) >= 9, True)
    expect("allocations of later iterations with tidemark", ours[4], 0.0)
    expect(f"allocations of the first one with tidemark, {ours[3]}, >= 1", ours[3] >= 1, True)
    used, committed, reserved = (number(name, output) for name in ("used at most", "committed", "reserved"))
    of_all_images = 4 * 1797 * (6 if host else 4)  # bytes of the arrays with an element for each image
    expect(f"{of_all_images} < {used} <= {committed} < {reserved}", of_all_images < used <= committed < reserved, True)


def accepts_any_number_of_clusters():
    lines = some_lines(40)
    for clusters in (1, 2, 39, 40):
        output = expect_as_computed_apart(lines, "--clusters", str(clusters))
        expect("first centroids", len(set(first_images(output))), clusters)


def stops_after_the_given_iterations():
    lines = some_lines(150)
    output = expect_as_computed_apart(lines, "--iterations", "2", iterations_max=2)
    expect_match(r"^Images were still moving when the iterations ended\.$", output)
    _, output = results_of()
    expect("said of iterations that ended by themselves", "still moving" in output, False)


def same_seed_gives_the_same_result_and_another_seed_does_not():
    expect("the second run", output_of(), output_of())
    _, output = results_of("--seed", "random")
    seed = expect_match(r", seed: (\d+);", output)[1]
    expect("the run with the seed that was printed", output_of("--seed", seed), output)
    others = {tuple(first_images(output_of("--seed", str(seed), "--iterations", "2"))) for seed in range(4)}
    expect("different choices of 4 seeds", len(others), 4)


def a_cluster_without_images_stays_where_it_is():
    # All images are equal except two. The first centroid gets all equal images, and the other equal centroids
    # get none.
    lines = some_lines(3)
    output = expect_as_computed_apart(lines[:1] * 20 + lines[1:], "--clusters", "6")
    expect_match(r"^with tidemark ", output)


def reports_where_it_runs():
    status, output, errors = example.run(env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    if "runs on the host" in output:
        expect("exit status and errors", (status, errors), (0, ""))
        return
    expect("exit status and output where no device is to be seen", (status, output), (1, ""))
    if not re.fullmatch(NO_DEVICE, errors):
        sys.exit(f"{errors!r} is not {NO_DEVICE}")
    if example.run() != (status, output, errors):  # a device exists
        expect_match(r"runs on the device$", output_of())


def full_disk_is_an_error():
    status, errors = example.run_on_full_disk("--iterations", "2")
    skip_without_device((status, "", errors))
    expect("exit status and errors", (status, errors), (1, "thrust_vectors: cannot write the output.\n"))


def bad_option_is_one_sentence():
    with file_of(some_lines(9)) as nine:
        cases = {
            ("--clusters", "0"): "--clusters needs a whole number from 1 to 1000, not '0'.",
            ("--clusters=1001",): "--clusters needs a whole number from 1 to 1000, not '1001'.",
            ("--iterations", "1"): "--iterations needs a whole number from 2 to 10000, not '1'.",
            ("--iterations", "3x"): "--iterations needs a whole number from 2 to 10000, not '3x'.",
            ("--seed", "-1"): f"--seed needs a whole number from 0 to {2**64 - 1}, not '-1'.",
            ("--seed",): "--seed needs a value; see --help.",
            ("--data", "nowhere.csv"): "cannot read nowhere.csv: No such file or directory.",
            ("--data", nine.name): f"{nine.name} has 9 images, too few for 10 clusters.",
            ("--epochs", "2"): "there is no option '--epochs'; see --help.",
            ("32",): "there is no option '32'; see --help."}
        for arguments, sentence in cases.items():
            example.expect_refusal(arguments, sentence)


def help_lists_every_option():
    status, output, errors = example.run("--help")
    expect("exit status and errors", (status, errors), (0, ""))
    expect("first line", output.splitlines()[0], "usage: thrust_vectors [options]")
    expect("options", options_in(output),
           ["--clusters", "--iterations", "--seed", "--data", "--help"])


globals()[CASE]()
