# SPDX-License-Identifier: Apache-2.0
"""Runs a program that writes a trace and reads both files independently: check.py WRITER CASE. Each case is one fact."""
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

writer, case = sys.argv[1:]


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}\n  is:        {got!r}\n  should be: {wanted!r}")


def events_of(kind):
    return [event for event in events if event["ph"] == kind]


def it_is_json_of_known_events():
    expect("kinds", {event["ph"] for event in events}, {"M", "C", "B", "E"})
    expect("processes", len({event["pid"] for event in events}), 1)
    for event in events_of("C") + events_of("B") + events_of("E"):
        expect(f"a time >= 0 in {event}", isinstance(event["ts"], float) and event["ts"] >= 0, True)


def any_name_is_escaped():
    replaced = "\ufffd"
    expect("names of counters", list(dict.fromkeys(event["name"] for event in events_of("C"))), [
        "plain", "\"quoted\" \\ / \b\f\n\r\t \x01\x1f\x7f größe 内存 🌊 \u0800\ud7ff\U00010000\U0010ffff" + replaced * 19])


def slices_nest_on_each_thread():
    open_slices, seen, latest = {}, [], {}
    for event in events:
        if event["ph"] not in "BE":
            continue
        thread = event["tid"]
        expect(f"the time of {event} is not before the one ahead of it", event["ts"] >= latest.get(thread, 0), True)
        latest[thread] = event["ts"]
        stack = open_slices.setdefault(thread, [])
        if event["ph"] == "B":
            stack.append(event["name"])
            seen.append((thread, *stack))
        else:
            expect(f"a slice is open for {event}", bool(stack), True)
            stack.pop()
    expect("slices left open", sum(map(len, open_slices.values())), 0)
    wanted = [(0, "run")]
    for i in range(3):
        wanted += [(0, "run", f'step "{i}"'), (0, "run", f'step "{i}"', "forward"), (i + 1, "free")]
    expect("slices", seen, wanted)


def counters_show_live_bytes():
    values = {}
    for event in events_of("C"):
        values.setdefault(event["name"][:5], []).append(event["args"]["live bytes"])
    expect("live bytes", values, {"plain": [0, 1000, 0, 1000, 0, 1000, 0, 24], '"quot': [0, 7, 0, 7, 0, 7, 0]})


def threads_are_named():
    names = {event["tid"]: event["args"]["name"] for event in events_of("M") if event["name"] == "thread_name"}
    expect("threads", sorted(names), [0, 1, 2, 3])
    for number, name in names.items():
        expect(f"{name!r} begins with its number", name.startswith(f"thread {number}: "), True)


def csv_is_what_the_recorded_traces_are():
    expect("header", rows[0], ["op", "id", "bytes", "thread"])
    live, peak, used = {}, 0, 0
    for op, block, size, thread in (row for row in rows[1:] if row[0] not in "rpse"):
        if op == "a":
            live[block] = int(size)
            used += int(size)
            peak = max(peak, used)
        else:
            expect("op and bytes", (op, size), ("f", "0"))
            used -= live.pop(block)
    expect("threads", {row[3] for row in rows[1:]}, {"0", "1", "2", "3"})
    expect("names", [row[2][:6] for row in rows if row[0] == "r" and row[2]], ["plain", "'quote"])
    expect("steps", [row[2] for row in rows if row[0] == "s"], ["run"] + ["step '0'", "forward", "free"] +
           ["step '1'", "forward", "free"] + ["step '2'", "forward", "free"])
    expect("peak, and live at the end", (peak, used), (1000, 24))


with tempfile.TemporaryDirectory() as folder:
    csv_file, json_file = pathlib.Path(folder, "run.csv"), pathlib.Path(folder, "run.json")
    subprocess.run([writer, csv_file, json_file], check=True, timeout=60)
    rows = list(csv.reader(csv_file.open(newline="")))
    events = json.loads(json_file.read_bytes().decode("utf-8"))
    globals()[case]()
