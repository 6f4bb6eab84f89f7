# SPDX-License-Identifier: Apache-2.0
"""Runs tidemark-report and reads its pages, as text and in a browser: check.py PROGRAM TRACES CASE. Each case
is one fact.

Cases that need matplotlib or chromium are skipped without them, with exit status 77 and the reason in
GoogleTest's form, which ./run repeats.
"""
import functools
import gzip
import html.parser
import json
import os
import pathlib
import pickle
import pickletools
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile

PROGRAM, TRACES, CASE = sys.argv[1:]
HEADER = "op,id,bytes,thread\n"
TIMEOUT_SECONDS = 120


def skip(reason):
    print(f"{__file__}: Skipped\n{reason}")
    sys.exit(77)


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}\n  is:        {got!r}\n  should be: {wanted!r}")


def run(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, timeout=TIMEOUT_SECONDS)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def report(text, *options):
    """Returns the page of a trace."""
    _needs_matplotlib()
    (folder / "trace.csv").write_text(text)
    expect("status and output", run(folder / "trace.csv", "-o", folder / "report.html", *options), (0, "", ""))
    return (folder / "report.html").read_text()


@functools.cache
def _needs_matplotlib():
    interpreter = pathlib.Path(PROGRAM).read_text().split("\n", 1)[0].removeprefix("#!")
    found = "import importlib.util, sys; sys.exit(importlib.util.find_spec('matplotlib') is None)"  # importing takes a second
    if subprocess.run([interpreter, "-c", found], capture_output=True).returncode != 0:
        skip(f"{interpreter} has no matplotlib")


def expect_refusal(content, line, reason):
    trace, page = folder / "trace.csv", folder / "report.html"
    trace.write_bytes(content if isinstance(content, bytes) else content.encode())
    expect(f"message for {content[:80]!r}", run(trace, "-o", page),
           (2, "", f"tidemark-report: {trace}:{line}: {reason}\n"))
    expect("the files there", sorted(os.listdir(folder)), ["trace.csv"])


# ---- wrong traces --------------------------------------------------------------------------------------------------


def rejects_a_wrong_trace_with_line_and_reason():
    """tests/telemetry/trace/readers.py has every wrong file."""
    expect_refusal("\ufeff" + HEADER, 1, "the header is '?op,id,bytes,thread', not op,id,bytes,thread")
    expect_refusal(HEADER + "\x1b[31m,0,1,0\n", 2, "op is '?[31m', none of a, f, r, p, s and e")
    expect_refusal(HEADER + "a,0,1,0\r\na,1,\u0661,0\r\n", 3, "bytes is '\u0661', not a whole number")
    expect_refusal(b"\x7fELF\x02\x01\x01\x00\xff\xfe", 1, "the header is '?ELF??????', not op,id,bytes,thread")
    page = folder / "report.html"
    (folder / "trace.csv").unlink()
    expect("a missing file", run(folder / "none.csv", "-o", page),
           (2, "", f"tidemark-report: {folder}/none.csv: No such file or directory\n"))
    expect("the files there", os.listdir(folder), [])


def answers_a_wrong_option_with_one_sentence():
    for arguments, sentence in (
            ((), "the following arguments are required: TRACE.csv"),
            (("trace.csv", "-o", "x", "--at", "noon"),
             "argument --at: invalid choice: 'noon' (choose from 'peak', 'end')"),
            (("trace.csv", "-o", "x", "--colour"), "unrecognized arguments: --colour"),
            (("trace.csv", "-o", "x", "\x1b[31m"), "unrecognized arguments: ?[31m"),
            (("trace.csv", "-o"), "argument -o/--output: expected one argument")):
        expect(f"message for {arguments}", run(*arguments), (2, "", f"tidemark-report: {sentence}; see --help\n"))


def help_names_every_option():
    status, output, errors = run("--help")
    expect("status and errors", (status, errors), (0, ""))
    for option in ("TRACE.csv", "--output REPORT.html", "--title TITLE", "--memory-viz SNAPSHOT.pickle",
                   "--pprof HEAP.pb.gz", "--at {peak,end}"):
        expect(f"{option} is in the help", option in output, True)


# ---- the output file -----------------------------------------------------------------------------------------------


def names_a_page_that_cannot_be_written_and_leaves_nothing():
    _needs_matplotlib()
    trace = folder / "trace.csv"
    trace.write_text(HEADER + "a,0,1,0\n")
    for page, reason in (
            (folder / "none/report.html", "No such file or directory"), (folder, "Is a directory"),
            ("/dev/full", "No space left on device"), (trace, "it would replace the trace")):
        expect(f"message for {page}", run(trace, "-o", page), (2, "", f"tidemark-report: {page}: {reason}\n"))
    expect("/dev/full is what it was", stat.S_ISCHR(os.stat("/dev/full").st_mode), True)
    # A disk that fills up while the page is written: the page of before stays.
    (folder / "report.html").write_text("before")
    limited = subprocess.run(["bash", "-c", 'ulimit -f 8; exec "$0" "$@"', PROGRAM, trace, "-o", folder / "report.html"],
                             capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    expect("message for a full disk", (limited.returncode, limited.stderr),
           (2, f"tidemark-report: {folder}/report.html: File too large\n"))
    expect("the files there", sorted(os.listdir(folder)), ["report.html", "trace.csv"])
    expect("the page of before", (folder / "report.html").read_text(), "before")


def keeps_permissions_of_a_page():
    before = os.umask(0o027)
    report(HEADER)
    expect("permissions of a new page", oct(stat.S_IMODE(os.stat(folder / "report.html").st_mode)), oct(0o640))
    os.umask(before)
    (folder / "report.html").chmod(0o604)
    report(HEADER)
    expect("permissions of a page that was there", oct(stat.S_IMODE(os.stat(folder / "report.html").st_mode)), oct(0o604))


# ---- the numbers ---------------------------------------------------------------------------------------------------


class tables_of(html.parser.HTMLParser):
    """Returns the tables of a page: their captions, and their rows as lists of texts."""

    def __init__(self, page):
        super().__init__()
        self.captions, self.rows, self.text = [], [], None
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if tag == "table":
            self.rows.append([])
        elif tag == "tr":
            self.rows[-1].append([])
        elif tag in ("th", "td", "caption"):
            self.text = ""

    def handle_data(self, data):
        if self.text is not None:
            self.text += data

    def handle_endtag(self, tag):
        if tag == "caption":
            self.captions.append(self.text)
        elif tag in ("th", "td"):
            self.rows[-1][-1].append(self.text)
        if tag in ("th", "td", "caption"):
            self.text = None


# Live after each event: 100, 100, 2148, 2149, 2049, 1, 1 (of 0 bytes), 1; peak 2149 after event 3.
SMALL = HEADER + "a,0,100,0\na,5,0,0\na,1,2048,1\na,2,1,0\nf,0,0,2\nf,1,0,1\na,3,0,0\nf,5,0,0\n"


def writes_a_page_into_a_pipe():
    _needs_matplotlib()
    (folder / "trace.csv").write_text("op,id,bytes,thread\na,0,64,0\n")
    status, output, errors = run(folder / "trace.csv", "-o", "/dev/stdout")
    expect("status and errors", (status, errors), (0, ""))
    expect("output", (output.startswith("<!DOCTYPE html>"), output.rstrip().endswith("</html>")), (True, True))


def shows_the_numbers_of_a_small_trace():
    summary, peak, longest = tables_of(report(SMALL)).rows
    expect("summary", summary, [
        ["Events", "8"], ["Blocks", "5"], ["Threads", "3"], ["Allocated in all", "2,149 B (2.1 KiB)"],
        ["Peak", "2,149 B (2.1 KiB)"], ["Peak reached by", "event 3"], ["Live at the end", "1 B in 2 blocks"],
        ["Freed by another thread than allocated", "1 blocks"]])
    expect("peak", peak, [
        ["Size", "Blocks", "Bytes", "Share of the peak"], ["0 B", "1", "0 B", "0.0 %"], ["1 B", "1", "1 B", "0.0 %"],
        ["65 to 128 B", "1", "100 B", "4.7 %"], ["up to 2 KiB", "1", "2,048 B (2.0 KiB)", "95.3 %"]])
    expect("longest", longest, [
        ["Block", "Bytes", "Events lived", "Allocated by", "Freed by"],
        ["5", "0 B", "6", "event 1", "event 7"], ["2", "1 B", "5", "event 3", "never"],
        ["0", "100 B", "4", "event 0", "event 4"], ["1", "2,048 B (2.0 KiB)", "3", "event 2", "event 5"],
        ["3", "0 B", "2", "event 6", "never"]])


# Two resources, two places, and a step in a step. The peak, 150, is after event 1.
NAMED = HEADER + ("s,0,epoch,0\nr,0,step,0\na,0,100,0\np,1,train() at run(+0x12),0\nr,1,<pool>,0\na,1,50,0\ns,1,,0\n"
                  "f,0,0,0\nr,0,,0\na,2,10,0\ne,1,0,0\np,0,,0\na,3,1,0\ne,0,0,0\nf,1,0,0\n")


def shows_resources_places_and_steps():
    page = tables_of(report(NAMED))
    _, _, resources, places, steps, longest = page.rows
    expect("resources", resources, [
        ["Resource", "Blocks", "Allocated in all", "Live at the peak"],
        ["step", "3", "111 B", "100 B"], ["<pool>", "1", "50 B", "50 B"]])
    expect("places", places, [
        ["Allocation site", "Blocks", "Allocated in all", "Live at the peak"],
        ["unknown", "2", "101 B", "100 B"], ["train() at run(+0x12)", "2", "60 B", "50 B"]])
    expect("steps", steps, [
        ["Step", "Name", "Events", "First event", "Peak in the step", "Live at its end"],
        ["0", "epoch", "5", "event 0", "150 B", "61 B"], ["1", "", "2", "event 2", "60 B", "60 B"]])
    expect("longest", longest, [
        ["Block", "Bytes", "Events lived", "Allocated by", "Freed by", "Resource", "Allocation site"],
        ["1", "50 B", "4", "event 1", "event 5", "<pool>", "train() at run(+0x12)"],
        ["2", "10 B", "3", "event 3", "never", "step", "train() at run(+0x12)"],
        ["0", "100 B", "2", "event 0", "event 2", "step", "unknown"], ["3", "1 B", "2", "event 4", "never", "step", "unknown"]])
    expect("command for the lines", page.captions[3], "The 2 of 2 allocation sites with most bytes live at the peak. "
           "Compile with -g; addr2line -Cfie run 0x12 then prints the line of run(+0x12)")
    expect("only for addresses", "addr2line" in report(NAMED.replace("run(+0x12)", "run.cpp:12")), False)


def size_classes_go_up_to_powers_of_two():
    sizes = [1, 2, 3, 4, 5, 8, 9, 1023, 1024, 1025, 2**20, 2**20 + 1]
    peak = tables_of(report(HEADER + "".join(f"a,{i},{size},0\n" for i, size in enumerate(sizes)))).rows[1]
    expect("classes", [row[:2] for row in peak[1:]], [
        ["1 B", "1"], ["2 B", "1"], ["3 to 4 B", "2"], ["5 to 8 B", "2"], ["9 to 16 B", "1"], ["up to 1 KiB", "2"],
        ["up to 2 KiB", "1"], ["up to 1 MiB", "1"], ["up to 2 MiB", "1"]])


def lists_only_the_longest_lived_blocks():
    rows = tables_of(report(HEADER + "".join(f"a,{i},1,0\n" for i in range(1000)))).rows[2]
    expect("blocks", [row[0] for row in rows[1:]], [str(i) for i in range(20)])


def writes_a_page_of_a_trace_without_events_or_bytes():
    for text, events in ((HEADER, "0"), (HEADER.strip(), "0"), (HEADER + "a,0,0,0\nf,0,0,0\n", "2")):
        page = report(text)
        summary, peak, _ = tables_of(page).rows
        expect("events", summary[0], ["Events", events])
        expect("peak", summary[4:6], [["Peak", "0 B"], ["Peak reached by", "no event"]])
        expect("rows of the peak", len(peak), 1)
        expect("a curve is there", 'id="curve"' in page, True)


def accepts_any_line_ends_and_the_largest_numbers():
    expect("with CRLF", tables_of(report(SMALL.replace("\n", "\r\n"))).rows, tables_of(report(SMALL)).rows)
    summary = tables_of(report(HEADER + f"a,{2**64 - 1},{2**64 - 1},{2**64 - 1}\n")).rows[0]
    expect("peak", summary[4][1], "18,446,744,073,709,551,615 B (16.0 EiB)")


def shows_the_numbers_of_the_recorded_traces():
    # As shared with the traces: events, threads, peak, frees by another thread.
    _needs_matplotlib()
    known = {"clang_syntax": ("199,400", "1", None, "0 blocks"), "lld_link": ("20,480", "5", None, "622 blocks"),
             "torch_gpt": ("9,834", "1", "79,152,324 B (75.5 MiB)", "0 blocks"), "torch_mlp": ("2,562", "1", None, "0 blocks")}
    for name, (events, threads, peak, foreign) in known.items():
        expect("status and output", run(f"{TRACES}/{name}.csv", "-o", folder / "report.html"), (0, "", ""))
        summary = dict(tables_of((folder / "report.html").read_text()).rows[0])
        expect(name, (summary["Events"], summary["Threads"], summary["Freed by another thread than allocated"]),
               (events, threads, foreign))
        expect(f"peak of {name}", peak in (None, summary["Peak"]), True)
        expect(f"size of the page of {name}", os.path.getsize(folder / "report.html") < 500_000, True)


def draws_the_curve_in_steps():
    path = re.search(r'<g id="curve">\s*<path d="([^"]*)"', report(SMALL))[1]
    points = re.findall(r"[ML] (\S+) (\S+)", path)
    expect("the points of 8 events: a corner between each two", len(points), 15)
    for before, after in zip(points, points[1:]):
        expect(f"{before} to {after} is level or upright", before[0] == after[0] or before[1] == after[1], True)


def writes_an_accessible_page_and_escapes_text():
    page = report(SMALL, "--title", "<script>alert(1)</script> & \"größe\"")
    expect("the title", page.count("&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;größe&quot;"), 2)
    expect("scripts", page.count("<script"), 0)
    expect("language", '<html lang="en">' in page, True)
    expect("captions", len(tables_of(page).captions), 3)
    expect("description of the curve", re.search(r'<desc id="curve-desc">(.*?)</desc>', page)[1],
           "Bytes live after each of 8 events. The peak, 2,149 B (2.1 KiB), is after event 3. At the end 1 B are live.")
    expect("row heads without scope", re.findall(r"<th(?! scope=)[ >]", page), [])


def writes_a_page_that_loads_nothing():
    page = report(SMALL)
    expect("policy", "default-src 'none'; style-src 'unsafe-inline'" in page, True)
    expect("addresses", [found for found in re.findall(r'(?:src|href|url)\s*[=(]\s*["\']?([^"\')\s>]+)', page)
                         if not found.startswith("#")], [])


# ---- files for other viewers ---------------------------------------------------------------------------------------

FACTS = json.loads(pathlib.Path(__file__).with_name("viewer_formats.json").read_text())


def exported(text, *options):
    """Returns the bytes of a snapshot and of a profile."""
    (folder / "trace.csv").write_text(text)
    expect("status and output", run(folder / "trace.csv", "--memory-viz", folder / "snapshot.pickle", "--pprof",
                                    folder / "heap.pb.gz", *options), (0, "", ""))
    return (folder / "snapshot.pickle").read_bytes(), (folder / "heap.pb.gz").read_bytes()


def snapshot_of(text, *options):
    return pickle.loads(exported(text, *options)[0])


def recorded(name):
    return pathlib.Path(TRACES, name + ".csv").read_text()


def expect_fields(kind, found):
    keys = set(found)
    expect(f"fields of a {kind} that are missing", set(FACTS[kind]["required"]) - keys, set())
    expect(f"fields of a {kind} that PyTorch does not know", keys - set(FACTS[kind]["known"]), set())


def writes_a_snapshot_of_the_fields_that_pytorch_records():
    for text in (SMALL, HEADER, recorded("lld_link")):
        snapshot = snapshot_of(text)
        expect_fields("snapshot", snapshot)
        for segment in snapshot["segments"]:
            expect_fields("segment", segment)
            for each in segment["blocks"]:
                expect_fields("block", each)
                expect("a known state", each["state"] in FACTS["states"], True)
                for frame in each["frames"]:
                    expect_fields("frame", frame)
        for event in snapshot["device_traces"][0]:
            expect_fields("event", event)
            expect("a known action", event["action"] in FACTS["actions"], True)
            for frame in event["frames"]:
                expect_fields("frame", frame)


def writes_a_snapshot_that_the_viewer_in_browsers_can_unpickle():
    for text in (SMALL, HEADER, recorded("torch_gpt")):
        operations = list(pickletools.genops(exported(text)[0]))
        expect("a protocol that it reads", operations[0][1] in FACTS["pickle_protocols"], True)
        expect("operations that it does not know", {operation.name for operation, _, _ in operations} -
               set(FACTS["pickle_opcodes"]), set())


def writes_a_snapshot_of_the_peak_or_of_the_end():
    for options, requested, events in (((), [0, 1, 100, 2048], 4), (("--at", "peak"), [0, 1, 100, 2048], 4),
                                       (("--at", "end"), [0, 1], 11)):
        snapshot = snapshot_of(SMALL, *options)
        segment, = snapshot["segments"]
        live = [each for each in segment["blocks"] if each["state"] == "active_allocated"]
        expect(f"live at {options}", sorted(each["requested_size"] for each in live), requested)
        expect("their sum", segment["requested_size"], sum(requested))
        expect("bytes that they take", segment["allocated_size"], sum(each["size"] for each in live))
        expect("bytes of the segment", segment["total_size"], sum(each["size"] for each in segment["blocks"]))
        expect(f"events until {options}", len(snapshot["device_traces"][0]), events)
    expect("a trace without events", (snapshot_of(HEADER)["segments"], snapshot_of(HEADER)["device_traces"]), ([], [[]]))


def writes_a_snapshot_whose_events_lead_to_its_blocks():
    for text in (SMALL, recorded("torch_mlp"), recorded("lld_link")):
        for at in ("peak", "end"):
            snapshot = snapshot_of(text, "--at", at)
            live, last = {}, None
            for event in snapshot["device_traces"][0]:
                if event["action"] == "alloc":
                    expect("a place that is free", event["addr"] in live, False)
                    live[event["addr"]] = event["size"]
                elif event["action"] == "free_requested":
                    expect("a block that is live", live[event["addr"]], event["size"])
                    last = event["addr"]
                else:
                    expect("the event after its request", event["addr"], last)
                    del live[event["addr"]]
            blocks = [each for segment in snapshot["segments"] for each in segment["blocks"]]
            expect(f"live after the events until the {at}", live, {
                each["address"]: each["requested_size"] for each in blocks if each["state"] == "active_allocated"})
            for before, after in zip(blocks, blocks[1:]):
                expect("where a block begins", after["address"], before["address"] + before["size"])


def writes_row_and_thread_of_each_block_as_its_stack():
    (folder / "trace.csv").write_text(SMALL)
    snapshot = snapshot_of(SMALL)
    expect("the stack of the third block", snapshot["device_traces"][0][2]["frames"],
           [{"filename": "trace.csv", "line": 4, "name": "block 1"}, {"filename": "trace.csv", "line": 0, "name": "thread 1"}])
    expect("a stack with names", [frame["name"] for frame in snapshot_of(NAMED)["device_traces"][0][1]["frames"]],
           ["block 1", "train() at run(+0x12)", "<pool>", "thread 0"])
    (folder / "trace.csv").write_text(SMALL)
    expect("row of the trace", (folder / "trace.csv").read_text().split("\n")[3], "a,1,2048,1")


def message_of(data):
    """Returns the fields of a protobuf message, by number: numbers, or bytes."""
    fields, at = {}, 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            value |= (data[at] & 0x7F) << shift
            shift += 7
            at += 1
            if data[at - 1] < 0x80:
                return value

    while at < len(data):
        key = number()
        if key & 7 == 0:
            value = number()
        else:
            expect("the kind of a field", key & 7, 2)
            size = number()
            at += size
            value = data[at - size:at]
        fields.setdefault(key >> 3, []).append(value)
    expect("where the last field ends", at, len(data))
    return fields


def numbers_of(data):
    """Returns the numbers that are packed into one field."""
    whole = message_of(b"".join(b"\x08" + each for each in re.findall(rb"[\x80-\xff]*[\x00-\x7f]", data)))
    return whole.get(1, [])


def named(kind, data):
    """Returns a message by the names of its fields."""
    names = {number: name for name, number in FACTS[kind].items()}
    fields = message_of(data)
    expect(f"fields of a {kind} that pprof does not know", set(fields) - set(names), set())
    return {names[number]: values for number, values in fields.items()}


def profile_of(text, *options):
    """Returns the types of values, the default type, and the samples: stacks from the leaf, with values and label."""
    profile = named("profile", gzip.decompress(exported(text, *options)[1]))
    strings = [string.decode() for string in profile["string_table"]]
    expect("the first string", strings[0], "")
    expect("strings that are there twice", len(strings), len(set(strings)))
    functions = {}
    for function in (named("function", each) for each in profile.get("function", [])):
        functions[function["id"][0]] = strings[function["name"][0]]
    locations = {}
    for location in (named("location", each) for each in profile.get("location", [])):
        line, = location["line"]
        locations[location["id"][0]] = functions[named("line", line)["function_id"][0]]
    expect("a location 0, which is none", 0 in locations or 0 in functions, False)
    types = [tuple(strings[each[of][0]] for of in ("type", "unit"))
             for each in (named("value_type", data) for data in profile["sample_type"])]
    samples = []
    for sample in (named("sample", each) for each in profile.get("sample", [])):
        label = named("label", sample["label"][0])
        samples.append(([locations[number] for number in numbers_of(sample["location_id"][0])],
                        numbers_of(sample["value"][0]), (strings[label["key"][0]], label["num"][0])))
    return types, strings[profile["default_sample_type"][0]], samples


def writes_a_profile_that_pprof_reads():
    types, default, samples = profile_of(SMALL)
    expect("types", types, [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"),
                            ("inuse_space", "bytes")])
    expect("default sample type", default, "inuse_space")
    expect("samples", samples, [
        (["blocks of 100 B", "thread 0"], [1, 100, 1, 100], ("bytes", 100)),
        (["blocks of 0 B", "thread 0"], [1, 0, 1, 0], ("bytes", 0)),
        (["blocks of 2,048 B (2.0 KiB)", "thread 1"], [1, 2048, 1, 2048], ("bytes", 2048)),
        (["blocks of 1 B", "thread 0"], [1, 1, 1, 1], ("bytes", 1))])
    expect("stacks with names", [stack for stack, _, _ in profile_of(NAMED)[2]], [
        ["blocks of 100 B", "step", "thread 0"], ["blocks of 50 B", "train() at run(+0x12)", "<pool>", "thread 0"]])
    expect("a trace without events", profile_of(HEADER)[2], [])


def writes_a_profile_of_the_peak_or_of_the_end():
    def sums(text, *options):
        return [sum(column) for column in zip(*(values for _, values, _ in profile_of(text, *options)[2]))]

    expect("at the end of a small trace", sums(SMALL, "--at", "end"), [5, 2149, 2, 1])
    expect("the peak of a recorded trace", sums(recorded("torch_gpt"))[3], 79_152_324)
    end = sums(recorded("torch_gpt"), "--at", "end")
    expect("blocks of all of it", end[0], recorded("torch_gpt").count("a,"))
    expect("live at its end", end[2], recorded("torch_gpt").count("a,") - recorded("torch_gpt").count("f,"))


def writes_the_largest_numbers():
    largest = HEADER + f"a,{2**64 - 1},{2**64 - 1},{2**64 - 1}\n"
    expect("a value that pprof can hold", profile_of(largest)[2][0][1], [1, 2**63 - 1, 1, 2**63 - 1])
    expect("a size that the snapshot can", snapshot_of(largest)["segments"][0]["requested_size"], 2**64 - 1)


def names_a_file_that_cannot_be_written():
    (folder / "trace.csv").write_text(SMALL)
    expect("without a file", run(folder / "trace.csv"),
           (2, "", "tidemark-report: there is nothing to write; name a file with --output, --memory-viz or --pprof\n"))
    for option in ("--memory-viz", "--pprof"):
        expect("a folder that is not there", run(folder / "trace.csv", option, folder / "none/file"),
               (2, "", f"tidemark-report: {folder}/none/file: No such file or directory\n"))
        expect("the trace itself", run(folder / "trace.csv", option, folder / "trace.csv"),
               (2, "", f"tidemark-report: {folder}/trace.csv: it would replace the trace\n"))
    expect("one file for two", run(folder / "trace.csv", "--memory-viz", folder / "one", "--pprof", folder / "one"),
           (2, "", f"tidemark-report: {folder}/one: two files would be written to it\n"))
    expect("a moment for a page alone", run(folder / "trace.csv", "-o", folder / "page.html", "--at", "end"),
           (2, "", "tidemark-report: --at is for --memory-viz and --pprof\n"))
    expect("the files there", os.listdir(folder), ["trace.csv"])


# ---- in a browser --------------------------------------------------------------------------------------------------

PROBE = """<script>
addEventListener("load", () => {
  const box = document.querySelector("#curve path").getBoundingClientRect();
  const frame = document.querySelector("svg").getBoundingClientRect();
  const peak = document.querySelector("#peak").getBoundingClientRect();
  const seen = what => [...document.querySelectorAll(what)].filter(element => element.getClientRects().length > 0);
  const found = {box: [box.x, box.y, box.width, box.height], frame: [frame.x, frame.y, frame.width, frame.height],
    peak: [peak.x + peak.width / 2, peak.y + peak.height / 2],
    stroke: getComputedStyle(document.querySelector("#curve path")).stroke,
    paper: getComputedStyle(document.body).backgroundColor, scroll: document.documentElement.scrollWidth,
    // Of what is seen: the charts, how high their letters are on the screen, where texts end, and row heads in two lines.
    charts: seen("svg").map(svg => svg.getBoundingClientRect().width),
    letters: seen("svg text").map(text => parseFloat(getComputedStyle(text).fontSize) *
      Math.hypot(text.getScreenCTM().a, text.getScreenCTM().b)),
    right: Math.max(...seen("svg text, caption, figcaption, h1, h2").map(text => text.getBoundingClientRect().right)),
    broken: seen("table:not(.pairs) tbody th").filter(head => {
      const text = document.createRange();
      text.selectNodeContents(head);
      return text.getClientRects().length > 1;
    }).length,
    width: innerWidth, loaded: performance.getEntriesByType("resource").length};
  top.postMessage(JSON.stringify(found), "*");
});
</script>"""
LISTENER = """<script>
const all = [];
addEventListener("message", said => document.documentElement.setAttribute("data-found", `[${all.push(said.data) && all}]`));
</script>"""


def browser(*arguments):
    """Returns the output of chromium, which runs without network; its folders are removed with the test's."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if program := shutil.which(name):
            break
    else:
        skip("there is no chromium here")
    # A separate process group, because chromium's children outlive it when it is killed.
    done = subprocess.Popen(
        [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND",
         "--hide-scrollbars", f"--user-data-dir={folder}/chromium", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "HOME": str(folder)})
    try:
        output, errors = done.communicate(timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(done.pid, signal.SIGKILL)
        sys.exit(f"{program} did not end within {TIMEOUT_SECONDS} s")
    if done.returncode != 0:
        sys.exit(f"{program} ended with {done.returncode}: {errors}")
    return output


def seen_by_the_browser(page, *arguments, widths=()):
    """Returns the findings of the probe in a window, or those of frames with these widths in pixels, because a window has at
    least 500."""
    probed, outer = folder / "probed.html", folder / "outer.html"
    # Ahead of the page's policy, which would not let it run.
    probed.write_text(page.replace("<head>", "<head>" + LISTENER + PROBE, 1))
    outer.write_text(LISTENER + "".join(
        f'<iframe src="probed.html" style="border: 0; width: {width}px; height: 900px"></iframe>' for width in widths))
    dumped = browser("--window-size=1000,900", *arguments, "--dump-dom", f"file://{outer if widths else probed}")
    found = re.search(r'data-found="([^"]*)"', dumped)
    if not found:
        sys.exit(f"the browser said nothing of the page: {dumped[:300]}")
    seen = json.loads(html.unescape(found[1]))
    if not widths:
        return seen[0]
    expect("widths of the frames", sorted(each["width"] for each in seen), sorted(widths))
    return seen


def recorded_page(name):
    return report(pathlib.Path(TRACES, name).read_text())


def fills_the_frame_with_the_curve_in_a_browser():
    seen = seen_by_the_browser(recorded_page("torch_gpt.csv"))
    x, y, width, height = seen["box"]
    left, top, frame_width, frame_height = seen["frame"]
    expect(f"the curve is drawn wide, {seen}", 0.8 * frame_width < width < frame_width and left < x, True)
    expect(f"the curve is drawn high, {seen}", 0.5 * frame_height < height < frame_height and top < y, True)
    peak_x, peak_y = seen["peak"]
    # The peak is after event 6,035 of 9,834 and the highest that the curve gets; its line has a width.
    expect(f"the peak's place, {seen}", abs((peak_x - x) / width - 6035 / 9833) < 0.01 and abs(peak_y - y) < 3, True)
    expect("requests of the page", seen["loaded"], 0)
    expect("the page is as wide as the window", seen["scroll"], seen["width"])


def shows_the_curve_in_a_picture_of_the_page():
    _needs_matplotlib()  # it reads the picture, so this case runs on the program's own interpreter
    page = recorded_page("clang_syntax.csv")
    picture = folder / "picture.png"
    browser("--window-size=1000,900", f"--screenshot={picture}", f"file://{folder}/report.html")
    pixels = json.loads(subprocess.run(["/usr/bin/python3", "-c", """
import json, sys, matplotlib.image
pixels = (matplotlib.image.imread(sys.argv[1])[:, :, :3] * 255).round().astype(int)
near = (abs(pixels - [0x0b, 0x62, 0xc4]).sum(axis=2) < 90)
peak = (abs(pixels - [0xb4, 0x23, 0x18]).sum(axis=2) < 60)
columns, rows = near.any(axis=0).nonzero()[0], near.any(axis=1).nonzero()[0]
print(json.dumps([len(columns), len(rows), int(near.sum()), int(peak.sum()), pixels.shape[1]]))
""", picture], capture_output=True, text=True, check=True, timeout=TIMEOUT_SECONDS).stdout)
    columns, rows, curve, peak, width = pixels
    expect(f"the curve goes from side to side, {pixels}", columns > 0.7 * width, True)
    expect(f"and from bottom to top, {pixels}", rows > 200, True)
    expect(f"it is a line and no area, {pixels}", curve < 20 * columns, True)
    expect(f"its peak is marked, {pixels}", peak > 20, True)


def shows_a_dark_page_on_a_dark_screen():
    page = report(SMALL)
    light = seen_by_the_browser(page)
    dark = seen_by_the_browser(page, "--blink-settings=preferredColorScheme=0")
    expect("light", (light["paper"], light["stroke"]), ("rgb(255, 255, 255)", "rgb(11, 98, 196)"))
    expect("dark", (dark["paper"], dark["stroke"]), ("rgb(20, 23, 26)", "rgb(108, 178, 255)"))


def fits_a_narrow_screen_without_scrolling_sideways():
    for seen in seen_by_the_browser(recorded_page("lld_link.csv"), widths=(320, 375, 500, 679, 681)):
        expect("the page is as wide as the screen", seen["scroll"], seen["width"])


def shows_a_readable_chart_on_every_screen():
    page = recorded_page("torch_gpt.csv")
    for seen in seen_by_the_browser(page, widths=(320, 375, 679, 681, 992)):
        width = seen["width"]
        expect(f"one chart is seen, {seen}", len(seen["charts"]), 1)
        expect(f"it is wide, {seen}", min(width - 33, 475) < seen["charts"][0] < width, True)
        expect(f"it has its letters, {seen}", len(seen["letters"]) > 10, True)
        expect(f"and all are legible, {seen}", 9 <= min(seen["letters"]) <= max(seen["letters"]) < 18, True)


def shows_whole_texts_on_a_telephone():
    for name in ("lld_link.csv", "torch_gpt.csv"):
        seen, = seen_by_the_browser(recorded_page(name), widths=(375,))
        expect(f"where the last text ends, {seen}", seen["right"] <= 375, True)
        expect(f"row heads in two lines, {seen}", seen["broken"], 0)


def gives_each_chart_ids_of_its_own():
    page = report(SMALL)
    ids = re.findall(r' id="([^"]*)"', page)
    expect("ids that are there twice", sorted({i for i in ids if ids.count(i) > 1}), [])
    named = re.findall(r'(?:href="|url\()#([^")]*)', page) + sum(
        (names.split() for names in re.findall(r'aria-labelledby="([^"]*)"', page)), [])
    expect("names of ids that are not there", sorted(set(named) - set(ids)), [])


with tempfile.TemporaryDirectory(prefix="tidemark-report-test-") as name:
    folder = pathlib.Path(name)
    globals()[CASE]()
