# SPDX-License-Identifier: Apache-2.0
"""Passes the same files to both readers of traces, in C++ and in Python: readers.py SUMMARY REPORT TRACES CASE.

Both must accept and reject the same files, by the rules of docs/traces.md, with the same numbers, line and reason.
"""
import importlib.machinery
import importlib.util
import pathlib
import random
import subprocess
import sys
import tempfile

SUMMARY, REPORT, TRACES, CASE = sys.argv[1:]
HEADER = "op,id,bytes,thread\n"
SMALL = HEADER + "a,0,100,0\na,5,0,0\na,1,2048,1\nf,0,0,2\nf,1,0,1\na,3,10,0\nf,5,0,0\n"
NAMED = HEADER + "s,0,first,0\nr,0,one,0\na,0,100,0\np,1,x.cpp:1,0\na,1,0,0\ns,1,,0\nf,1,0,0\ne,1,0,0\ne,0,0,0\n"

sys.dont_write_bytecode = True  # the program lies in the sources
loader = importlib.machinery.SourceFileLoader("tidemark_report", REPORT)
report = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
sys.modules[loader.name] = report  # dataclasses look their module up
loader.exec_module(report)


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}\n  is:        {got!r}\n  should be: {wanted!r}")


def results_in_cpp(paths):
    done = subprocess.run([SUMMARY, *paths], capture_output=True, timeout=120, check=True)
    return done.stdout.decode().splitlines()


def results_in_python(path):
    try:
        trace = report.read(str(path))
    except report.refusal as sentence:
        return str(sentence)
    left = [block.bytes for block in trace.blocks.values() if block.freed_at is None]
    events = [end - s.first_event for s in trace.steps.values()
              if (end := len(trace.live_bytes) if s.end_event is None else s.end_event) > s.first_event]
    return (f"{len(trace.live_bytes)} events, {len(trace.blocks)} blocks, {len(trace.threads)} threads, "
            f"peak {max(trace.live_bytes, default=0)}, {sum(left)} bytes in {len(left)} blocks left" +
            (f", {len(events)} steps of {sum(events)} events" if events else ""))


def results_of_both(contents):
    """Returns the output of both readers for each of these files, which must be equal, without the file's
    name."""
    paths = []
    for i, content in enumerate(contents):
        paths.append(folder / f"{i}.csv")
        paths[-1].write_bytes(content if isinstance(content, bytes) else content.encode())
    said = []
    for path, content, cpp in zip(paths, contents, results_in_cpp(paths), strict=True):
        expect(f"result in C++ for {content[:200]!r}", cpp, results_in_python(path))
        said.append(cpp.removeprefix(str(path)))
    return said


def both_readers_take_every_good_file():
    small = "7 events, 4 blocks, 3 threads, peak 2148, 10 bytes in 1 blocks left"
    nothing = "0 events, 0 blocks, 0 threads, peak 0, 0 bytes in 0 blocks left"
    largest = 2**64 - 1
    one = "1 events, 1 blocks, 1 threads, peak {0}, {0} bytes in 1 blocks left"
    good = {
        SMALL: small, SMALL[:-1]: small, SMALL.replace("\n", "\r\n"): small,
        SMALL.replace("\n", "\r\n", 3): small,
        HEADER: nothing, HEADER[:-1]: nothing, HEADER[:-1] + "\r\n": nothing,
        HEADER + f"a,{largest},{largest},{largest}\n": one.format(largest),
        HEADER + "a,00000000000000000007,00000000000000000007,0\n": one.format(7),
        # Threads have any numbers, and there may be more of them than a replay starts.
        HEADER + "a,0,1,1024\nf,0,0,4294967296\n": "2 events, 1 blocks, 2 threads, peak 1, 0 bytes in 0 blocks left",
        HEADER + "".join(f"a,{i},1,{i}\n" for i in range(1025)):
            "1025 events, 1025 blocks, 1025 threads, peak 1025, 1025 bytes in 1025 blocks left",
        # Names of resources and places, and steps, are no events.
        HEADER + "r,0,nodes,0\np,1,a b.cpp:3 (x),7\na,0,5,0\nr,0,,0\np,0,,0\nr,9,\xff,0\n":
            "1 events, 1 blocks, 1 threads, peak 5, 5 bytes in 1 blocks left",
        HEADER + "s,3,one,0\na,0,5,0\ns,1,,1\ne,1,0,1\nf,0,0,0\ns,2,open,0\na,1,1,0\ne,3,0,9\n":
            "3 events, 2 blocks, 1 threads, peak 5, 1 bytes in 1 blocks left, 2 steps of 4 events",
        # As much as there can be, twice, but not at once.
        HEADER + f"a,0,{largest},0\nf,0,0,0\na,1,{largest},0\nf,1,0,0\n":
            f"4 events, 2 blocks, 1 threads, peak {largest}, 0 bytes in 0 blocks left",
    }
    expect("results of both readers", results_of_both(list(good)), list(good.values()))


def both_readers_refuse_every_bad_file_alike():
    row = "a,0,1,0\n"
    bad = {
        "": ":1: the file is empty; it should begin with op,id,bytes,thread",
        "\n": ":1: the header is '', not op,id,bytes,thread",
        row: ":1: the header is 'a,0,1,0', not op,id,bytes,thread",
        "op,id,bytes\n": ":1: the header is 'op,id,bytes', not op,id,bytes,thread",
        HEADER[:-1] + "\r": ":1: the header is 'op,id,bytes,thread?', not op,id,bytes,thread",
        "op, id,bytes,thread\n": ":1: the header is 'op, id,bytes,thread', not op,id,bytes,thread",
        HEADER + "\n": ":2: the row is empty", HEADER + "\r\n": ":2: the row is empty",
        HEADER + row + "\n\n": ":3: the row is empty",
        HEADER + row + "a,1,1\n": ":3: the row has 3 fields, not 4",
        HEADER + row + "a,1": ":3: the row has 2 fields, not 4",
        HEADER + "a,0,1,0,\n": ":2: the row has 5 fields, not 4",
        HEADER + "x,0,1,0\n": ":2: op is 'x', none of a, f, r, p, s and e", HEADER + "A,0,1,0\n": ":2: op is 'A', none of a, f, r, p, s and e",
        HEADER + ",0,1,0\n": ":2: op is '', none of a, f, r, p, s and e", HEADER + "a ,0,1,0\n": ":2: op is 'a ', none of a, f, r, p, s and e",
        HEADER + '"a",0,1,0\n': ":2: op is '\"a\"', none of a, f, r, p, s and e",
        # A CR alone ends no line.
        HEADER + "a,0,1,0\r\r\n": ":2: thread is '0?', not a whole number",
        HEADER + "a,0,1,0\r": ":2: thread is '0?', not a whole number",
        HEADER + "a,0,1,0\ra,1,1,0\n": ":2: the row has 7 fields, not 4",
        HEADER + row + row: ":3: block 0 is allocated twice; first by event 0",
        HEADER + row + "f,0,0,0\n" + row: ":4: block 0 is allocated twice; first by event 0",
        HEADER + "f,7,0,0\n": ":2: block 7 is freed and was never allocated",
        HEADER + row + "f,0,0,0\nf,0,0,0\n": ":4: block 0 is freed twice; first by event 1",
        HEADER + row + "f,0,1,0\n": ":3: bytes is 1, expected 0 in a row that frees",
        HEADER + "r,,x,0\n": ":2: id is '', not a whole number", HEADER + "p,0,x,\n": ":2: thread is '', not a whole number",
        HEADER + "s,0,a,b,0\n": ":2: the row has 5 fields, not 4", HEADER + "e,0,x,0\n": ":2: bytes is 'x', not a whole number",
        HEADER + "s,0,,0\ne,0,1,0\n": ":3: bytes is 1, expected 0 in a row that ends a step",
        HEADER + "s,0,,0\ns,0,,0\n": ":3: step 0 begins twice", HEADER + "e,0,0,0\n": ":2: step 0 ends and is not open",
        HEADER + "s,0,,0\ne,0,0,0\ne,0,0,0\n": ":4: step 0 ends and is not open",
        HEADER + f"a,0,{2**64 - 1},0\na,1,1,0\n": ":3: more than 2^64 - 1 bytes are live",
    }
    longest = "a,0,1," + "9" * (2**20 - 6)
    for row in (longest, longest[:-1] + "\r"):
        for end in ("", "\n"):
            bad[HEADER + row + "0" + end] = ":2: the line has more than 2^20 bytes"
            bad[HEADER + row + end] = f":2: thread is '{'9' * 40}...', " + (
                "not a whole number" if row.endswith("\r") and not end else "more than 2^64 - 1")
    bad["\0" * (2**20 + 1)] = ":1: the line has more than 2^20 bytes"
    bad[HEADER + "\u00e9" * 2**19 + ",0\n"] = ":2: the line has more than 2^20 bytes"  # of fewer characters
    for name, numbers in (("id", "a,{},1,0"), ("bytes", "a,0,{},0"), ("thread", "a,0,1,{}")):
        for field in ("", "x", "-1", "+1", " 1", "1 ", "1.5", "1e3", "0x10", "1_000", '"1"', "1\0"):
            bad[HEADER + numbers.format(field) + "\n"] = f":2: {name} is '{field}', not a whole number".replace("\0", "?")
        for field in (str(2**64), "0" * 20 + "1"):
            bad[HEADER + numbers.format(field) + "\n"] = f":2: {name} is '{field}', more than 2^64 - 1"
        bad[HEADER + numbers.format("9" * 9000) + "\n"] = f":2: {name} is '{'9' * 40}...', more than 2^64 - 1"
    expect("results of both readers", results_of_both(list(bad)), list(bad.values()))
    bytes_in_it = HEADER.encode() + b"a,0,1,0\na,1,\xff\xfe,0\n"
    expect("results of both readers", results_of_both([bytes_in_it]), [":3: bytes is '??', not a whole number"])


def both_readers_agree_on_files_that_were_tampered_with():
    chance = random.Random(4)
    tampered = []
    for _ in range(2000):
        text = list(chance.choice((SMALL, NAMED)))
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(text))
            text[place:place + chance.randint(0, 2)] = chance.choices("afrpse019,\n\r\0 -\"x", k=chance.randint(0, 2))
        tampered.append("".join(text))
    said = results_of_both(tampered)
    taken = sum(not sentence.startswith(":") for sentence in said)
    expect(f"of 2,000 some are taken and some are not: {taken} are", 100 < taken < 1900, True)


def both_readers_agree_on_the_recorded_traces():
    paths = sorted(path for path in pathlib.Path(TRACES).glob("*.csv") if not path.stem.endswith(("_steps", "_lifetimes")))
    expect("traces", len(paths), 4)
    expect("result in C++", results_in_cpp(paths), [results_in_python(path) for path in paths])


def both_readers_say_why_a_file_cannot_be_read():
    for path, reason in ((folder / "none.csv", "No such file or directory"), (folder, "Is a directory")):
        expect("result in C++", results_in_cpp([path]), [f"{path}: {reason}"])
        expect("result in Python", results_in_python(path), f"{path}: {reason}")


with tempfile.TemporaryDirectory(prefix="tidemark-readers-test-") as name:
    folder = pathlib.Path(name)
    globals()[CASE]()
