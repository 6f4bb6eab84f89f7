# SPDX-License-Identifier: Apache-2.0
"""Runs a program with TIDEMARK_TRACE: check_process.py PROGRAM REPORT CASE. Each case is one fact."""
import os
import pathlib
import subprocess
import sys
import tempfile

PROGRAM, REPORT, CASE = sys.argv[1:]


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}\n  is:        {got!r}\n  should be: {wanted!r}")


def run(path, *arguments):
    environment = {name: text for name, text in os.environ.items() if name != "TIDEMARK_TRACE"}
    if path is not None:
        environment["TIDEMARK_TRACE"] = str(path)
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, env=environment, timeout=300)
    return done.returncode, done.stdout, done.stderr


def rows_of(path):
    header, *rows = path.read_text().splitlines()
    expect("the header", header, "op,id,bytes,thread")
    return [row.split(",") for row in rows]


def traces_every_resource_of_a_program():
    expect("output of the program", run(folder / "run.csv"), (0, "done\n", ""))
    rows = rows_of(folder / "run.csv")
    names, current, sizes, places = {}, "", {}, {}
    for op, id, text, _ in rows:
        if op == "r":
            current = names.setdefault(id, text)
        elif op == "p":
            place = places.setdefault(id, text)
        elif op == "a":
            sizes.setdefault(current, []).append(int(text))
            if current == "scratch":
                expect(f"the place of a scratch block, {place}, names its function", "smooth" in place, True)
    expect("blocks by resource", sizes, {"scratch": [4000, 4000], "step; one": [80, 5, 80, 5], "team": [40, 4], "pictures": [24],
                                         "train": [300, 200] * 3, "counted": [55], "static": [77]})
    expect("steps", [row[2] for row in rows if row[0] == "s"], ["train kind 7"] * 3)
    expect("ends of steps", [row[1] for row in rows if row[0] == "e"], ["0", "1", "2"])
    freed = {row[1] for row in rows if row[0] == "f"}
    expect("all blocks are freed", freed, {row[1] for row in rows if row[0] == "a"})
    expect("threads", {row[3] for row in rows if row[0] in "af"}, {"0", "1"})


def report_shows_the_names():
    run(folder / "run.csv")
    done = subprocess.run([REPORT, folder / "run.csv", "--pprof", folder / "run.pb.gz"], capture_output=True, text=True)
    expect("output of the report", (done.returncode, done.stderr), (0, ""))


def writes_nothing_without_the_variable():
    for value in (None, ""):
        expect("output of the program", run(value), (0, "done\n", ""))
    expect("files", os.listdir(folder), [])


def names_a_file_that_cannot_be_written_and_runs_on():
    sentence = "TIDEMARK_TRACE: trace_log: cannot open /nowhere/run.csv: No such file or directory; nothing is traced\n"
    expect("without a handler", run("/nowhere/run.csv"), (0, "done\n", "tidemark: " + sentence))
    expect("with a handler", run("/nowhere/run.csv", "handler"), (0, "handled: " + sentence + "done\n", ""))
    status, output, errors = run("/dev/full")
    expect("a full disk", (status, output, errors),
           (0, "done\n", "tidemark: TIDEMARK_TRACE: trace_log: cannot write /dev/full: No space left on device; nothing is traced\n"))


def has_the_process_id_for_p():
    run(folder / "run_%p.csv")
    (file,) = folder.iterdir()
    expect(f"{file.name} has a number", file.name.removeprefix("run_").removesuffix(".csv").isdigit(), True)


def a_forked_child_writes_nothing():
    expect("output of the program", run(folder / "run.csv"), (0, "done\n", ""))
    without = [row[:3] for row in rows_of(folder / "run.csv") if row[0] in "af"]
    expect("output of the forking program", run(folder / "forked.csv", "fork"), (0, "", ""))
    expect("its events", [row[:3] for row in rows_of(folder / "forked.csv") if row[0] in "af"], without)


with tempfile.TemporaryDirectory(prefix="tidemark-trace-test-") as name:
    folder = pathlib.Path(name)
    globals()[CASE]()
