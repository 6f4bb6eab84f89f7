# SPDX-License-Identifier: Apache-2.0
"""tidemark-report on traces and arguments that Hypothesis generates: report.py PROGRAM CORPUS [MINUTES
FOUND].

For every input the program writes the requested output, or one sentence without control characters and
nothing else. Its report of a trace agrees with a model that plays the trace. Without MINUTES the test runs
the same few hundred examples each time. With MINUTES it runs new examples for that time; failing examples are
kept in the folder FOUND and tried first the next time. Traces are programs of a model whose text is then
edited, so that a failing trace prints short. The test also reads the traces of CORPUS, which a fuzzer
found for tidemark-plan.
"""
import contextlib
import gzip
import importlib.machinery
import importlib.util
import io
import os
import pathlib
import pickle
import sys
import tempfile
import time
from unittest import mock

import hypothesis
import hypothesis.configuration
from hypothesis import strategies as some
from hypothesis.database import DirectoryBasedExampleDatabase

PROGRAM, CORPUS = sys.argv[1:3]
MINUTES, FOUND = (float(sys.argv[3]), sys.argv[4]) if len(sys.argv) > 3 else (0, None)

loader = importlib.machinery.SourceFileLoader("tidemark_report", PROGRAM)
sys.dont_write_bytecode = True
report = importlib.util.module_from_spec(importlib.util.spec_from_loader("tidemark_report", loader))
sys.modules["tidemark_report"] = report
loader.exec_module(report)

HEADER = "op,id,bytes,thread\n"
NUMBERS = some.one_of(some.integers(0, 300), some.sampled_from([2**32, 2**53 + 1, 2**62, 2**63, 2**64 - 1]))


# ---- traces --------------------------------------------------------------------------------------------------------


@some.composite
def programs(draw):
    """Returns events that a program could have made: (op, id, bytes, thread)."""
    events, live, used = [], {}, 0
    for n in range(draw(some.integers(0, 40))):
        thread = draw(some.integers(0, 2))
        if live and draw(some.booleans()):
            id = draw(some.sampled_from(sorted(live)))
            used -= live.pop(id)
            events.append(("f", id, 0, thread))
        else:
            size = draw(NUMBERS)
            if used + size < 2**64:
                live[n] = size
                used += size
                events.append(("a", n, size, thread))
    return events


def text_of(events):
    return HEADER + "".join(",".join(map(str, event)) + "\n" for event in events)


WRONG = some.one_of(
    some.sampled_from(["", "-1", "+1", " 1", "1_0", "0x1", "1e3", "\u0661", str(2**64), "9" * 5000, "a", "f", ",", "\r", "\x00",
                       "\x1b[31m", "\n", "\u2028"]), some.text(max_size=5), NUMBERS.map(str))


@some.composite
def edited_traces(draw):
    """Returns the text of a program, with fields and rows changed, as bytes."""
    rows = [line.split(",") for line in text_of(draw(programs())).splitlines()]
    for _ in range(draw(some.integers(0, 3))):
        row = draw(some.integers(0, len(rows) - 1))
        change = draw(some.integers(0, 4))
        if change == 0 and rows[row]:
            rows[row][draw(some.integers(0, len(rows[row]) - 1))] = draw(WRONG)
        elif change == 1:
            rows.insert(row, rows[draw(some.integers(0, len(rows) - 1))][:])
        elif change == 2 and len(rows) > 1:
            del rows[row]
        elif change == 3:
            rows[row] = rows[row] + [draw(WRONG)] if draw(some.booleans()) else rows[row][:-1]
        else:
            rows.insert(row, [draw(WRONG)])
    data = draw(some.sampled_from(["\n", "\r\n"])).join(",".join(row) for row in rows).encode("utf-8", "surrogatepass")
    return data + draw(some.binary(max_size=4)) if draw(some.integers(0, 9)) == 0 else data + b"\n"


# ---- the program ---------------------------------------------------------------------------------------------------


def run(arguments):
    """Returns exit status, output and errors of the program, which may raise nothing else."""
    output, errors = io.StringIO(), io.StringIO()
    with mock.patch.object(sys, "argv", ["tidemark-report", *arguments]), contextlib.redirect_stdout(output), \
            contextlib.redirect_stderr(errors):
        try:
            report.main()
            status = 0
        except SystemExit as end:
            status = end.code or 0
    return status, output.getvalue(), errors.getvalue()


def expect_answer(arguments):
    status, output, errors = run(arguments)
    if status == 0:
        assert errors == "", errors
        return True
    assert status == 2 and output == "", (status, output)
    assert errors.startswith("tidemark-report: ") and errors.endswith("\n"), errors
    assert errors[:-1].isprintable(), f"a sentence with control characters: {errors!r}"
    return False


@contextlib.contextmanager
def folder_with(trace):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "trace.csv").write_bytes(trace)
        yield folder


def fields_of(message):
    """Returns the fields of a protobuf message as pairs of number and value."""
    at, fields = 0, []

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        value = varint()
        if key & 7 == 2:
            value, at = message[at:at + value], at + value
        fields.append((key >> 3, value))
    return fields


# ---- properties ----------------------------------------------------------------------------------------------------


@hypothesis.given(programs())
def numbers_of_a_trace_are_those_of_the_program(events):
    live, used, curve = {}, 0, []
    for op, id, size, thread in events:
        used += size if op == "a" else -live.pop(id)
        if op == "a":
            live[id] = size
        curve.append(used)
    with folder_with(text_of(events).encode()) as folder:
        recorded = report.read(str(folder / "trace.csv"))
        assert recorded.live_bytes == curve
        assert [b.id for b in recorded.blocks.values() if b.freed_at is None] == list(live)
        assert recorded.threads == {thread for *_, thread in events}
        at = recorded.peak_event
        assert (curve[at] if at is not None else 0) == max(curve, default=0)
        assert expect_answer([str(folder / "trace.csv"), "--memory-viz", str(folder / "viz"), "--pprof", str(folder / "heap"),
                              "--at", "end"])
        snapshot = pickle.loads((folder / "viz").read_bytes())
        assert sum(segment["requested_size"] for segment in snapshot["segments"]) == used
        assert len(snapshot["device_traces"][0]) == sum(1 if op == "a" else 2 for op, *_ in events)
        samples = [value for field, value in fields_of(gzip.decompress((folder / "heap").read_bytes())) if field == 2]
        assert len(samples) == len({(thread, size) for op, _, size, thread in events if op == "a"})


@hypothesis.given(edited_traces(), some.sampled_from([["--memory-viz"], ["--pprof"], ["--memory-viz", "--pprof"]]),
                  some.sampled_from([[], ["--at", "peak"], ["--at", "end"]]))
def a_trace_is_written_or_refused_in_a_sentence(trace, kinds, at):
    with folder_with(trace) as folder:
        written = expect_answer([str(folder / "trace.csv"), *(text for kind in kinds for text in (kind, str(folder / kind))), *at])
        assert sorted(os.listdir(folder)) == sorted([*kinds, "trace.csv"] if written else ["trace.csv"])


@hypothesis.given(edited_traces(), some.text(max_size=30))
def a_page_is_written_or_the_trace_refused(trace, title):
    with folder_with(trace) as folder:
        if expect_answer([str(folder / "trace.csv"), "-o", str(folder / "page.html"), f"--title={title}"]):
            assert (folder / "page.html").read_text().startswith("<!DOCTYPE html>")


ARGUMENTS = some.one_of(
    some.sampled_from(["-o", "--output", "--title", "--memory-viz", "--pprof", "--at", "peak", "end", "--help", "-h", "--", "-",
                       "trace.csv", "none.csv", "folder", "x", "y", "./x", "--at=end", "--pprof=x", "-oy", "--pprof=", "-o"]),
    some.text(alphabet=some.characters(blacklist_characters="\0/", blacklist_categories=["Cs"]), max_size=10),
    some.binary(max_size=5).map(lambda data: os.fsdecode(data.replace(b"\0", b"").replace(b"/", b""))))


@hypothesis.given(some.lists(ARGUMENTS, max_size=8))
def any_arguments_are_answered(arguments):
    with folder_with(text_of([("a", 0, 1, 0)]).encode()) as folder, contextlib.ExitStack() as stack:
        (folder / "folder").mkdir()
        before = os.getcwd()
        stack.callback(os.chdir, before)
        os.chdir(folder)
        stack.enter_context(mock.patch.object(report, "page", lambda recorded, title: title))  # it takes a second
        expect_answer(arguments)
        assert (folder / "trace.csv").read_text().startswith(HEADER), "the trace is still there"


def has_matplotlib():
    return importlib.util.find_spec("matplotlib") is not None


def run_all(examples, **settings):
    properties = [(numbers_of_a_trace_are_those_of_the_program, examples), (a_trace_is_written_or_refused_in_a_sentence, examples),
                  (any_arguments_are_answered, examples)]
    if has_matplotlib():
        properties.append((a_page_is_written_or_the_trace_refused, max(examples // 40, 5)))
    for property, number in properties:
        hypothesis.settings(deadline=None, max_examples=number, suppress_health_check=list(hypothesis.HealthCheck),
                            **settings)(property)()
    return sum(number for _, number in properties)


def main():
    for file in sorted(pathlib.Path(CORPUS).iterdir()):
        if (data := file.read_bytes()).startswith(b"t"):
            with folder_with(data[1:].split(b"step,")[0]) as folder:
                expect_answer([str(folder / "trace.csv"), "--pprof", str(folder / "heap")])
    if not MINUTES:
        print(f"{run_all(150, derandomize=True, database=None)} examples, nothing found")
        return
    end, tried = time.monotonic() + 60 * MINUTES, 0
    while time.monotonic() < end:
        tried += run_all(1000, database=DirectoryBasedExampleDatabase(FOUND))
        print(f"number_of_executed_units: {tried}", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:  # else a folder appears where the program was started
        hypothesis.configuration.set_hypothesis_home_dir(home)
        main()
