#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmarks, ours and the peers' interleaved in one process, and prints each ratio beside its target.

A ratio is the peer's time over ours, of medians: above 1, ours is faster. Times depend on the machine and its load,
ratios hardly. Where ours wraps the peer, the target is what it may add; a few have a time of their own as well. Below
them are figures of ours alone: times of a second and what else a benchmark counts.
"""
import argparse
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

here = pathlib.Path(__file__).parent
parser = argparse.ArgumentParser(prog="./run bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("program", help=argparse.SUPPRESS)
parser.add_argument("--filter", default="", help="only targets whose name matches this regular expression")
parser.add_argument("--repetitions", type=int, default=9, help="runs of each benchmark (default 9)")
parser.add_argument("--seconds", type=float, default=0.2, help="length of a run (default 0.2)")
parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is not met")
parser.add_argument("--document", action="store_true", help="write docs/benchmarks.md as well")
options = parser.parse_args()

targets = [target for target in json.loads((here / "targets.json").read_text()) if re.search(options.filter, target["name"])]
if not targets:
    sys.exit(f"no target's name matches '{options.filter}'")
names = sorted({target[side] for target in targets for side in ("ours", "peer") if side in target})


def run(some_names):
    pattern = "^(" + "|".join(map(re.escape, some_names)) + ")(/iterations:[0-9]+)?$"
    done = subprocess.run([options.program, f"--benchmark_filter={pattern}", f"--benchmark_repetitions={options.repetitions}",
                           f"--benchmark_min_time={options.seconds}", "--benchmark_enable_random_interleaving=true",
                           "--benchmark_report_aggregates_only=true", "--benchmark_format=json"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"the benchmarks failed: {done.stderr}")
    return json.loads(done.stdout) if done.stdout else {"benchmarks": [], "context": {}}


# What uses threads runs in a process of its own, because the C library and our counters leave locked instructions away
# as long as there was no second thread.
of_one_thread = run([name for name in names if "/threads:" not in name])
of_threads = run([name for name in names if "/threads:" in name]) if any("/threads:" in name for name in names) else None
report = {"context": of_one_thread["context"] or of_threads["context"],
          "benchmarks": of_one_thread["benchmarks"] + (of_threads["benchmarks"] if of_threads else [])}


def nanoseconds(row):
    # A row that counts items tells the time of one item.
    rate = row.get("items_per_second")
    return 1e9 / rate if rate else row["cpu_time"]


median_rows = {row["run_name"]: row for row in report["benchmarks"] if row["aggregate_name"] == "median"}
medians = {name: nanoseconds(row) for name, row in median_rows.items()}
# What some benchmarks count besides: calls for memory, and bytes asked for in 100 turns.
counted = [{"name": name, "allocations": row["allocations"], "bytes_per_100": row["bytes_per_100"],
            "met": row["allocations"] == 0 and row["bytes_per_100"] == 0 if name.startswith("workspace/") else None}
           for name, row in sorted(median_rows.items()) if "bytes_per_100" in row]

results, figures, left_out = [], [], []
for target in targets:
    missing = [target[side] for side in ("ours", "peer") if side in target and target[side] not in medians]
    if missing:
        left_out.append(f"left out: {target['name']}: {', '.join(missing)} is not in this build (peer not installed)")
        continue
    if "figure" in target:
        figure, at_most = target["figure"], target["at_most"]
        value = medians[target["ours"]] / 1e9 if figure == "seconds" else median_rows[target["ours"]][figure]
        figures.append({"name": target["name"], "figure": figure, "value": round(value, 5), "at_most": at_most,
                        "met": None if at_most is None else value <= at_most})
        continue
    ours, peer = medians[target["ours"]], medians[target["peer"]]
    ratio = peer / ours
    if "at_most_ns" in target:
        wanted, met = f"{target['at_most_ns']:.0f} ns", ours <= target["at_most_ns"]
    elif "added_ns" in target:
        wanted, met = f"+{target['added_ns']:g} ns", ours - peer <= target["added_ns"]
    else:
        wanted = target["ratio"]
        met = None if wanted is None else ratio >= wanted
    results.append({"name": target["name"], "ours_ns": round(ours, 3), "peer_ns": round(peer, 3),
                    "ratio": round(ratio, 2), "target": wanted, "met": met})


def processor():
    found = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return found[1] if found else platform.processor()


def verdict(result):
    return {True: "met", False: "NOT MET", None: ""}[result["met"]]


machine = {"processor": processor(), "cores": os.cpu_count(), "kernel": platform.release(),
           "date": report["context"]["date"][:10], "load": report["context"].get("load_avg"),
           "version": subprocess.run(["git", "-C", str(here), "describe", "--always", "--dirty"],
                                     capture_output=True, text=True).stdout.strip()}
width = max((len(result["name"]) for result in results + figures), default=0)
if results:
    print(f"{'':{width}}  {'ours ns':>9} {'peer ns':>9} {'ratio':>7} {'target':>7}")
for result in results:
    target = result["target"]
    target = "" if target is None else target if isinstance(target, str) else f"{target:.1f}"
    print(f"{result['name']:{width}}  {result['ours_ns']:9.2f} {result['peer_ns']:9.2f} {result['ratio']:7.2f} {target:>7}  {verdict(result)}")
if figures:
    print(f"\n{'':{width}}  {'':>14} {'ours':>10} {'at most':>8}")
for row in figures:
    at_most = "" if row["at_most"] is None else f"{row['at_most']:g}"
    print(f"{row['name']:{width}}  {row['figure']:>14} {row['value']:10.4f} {at_most:>8}  {verdict(row)}")
if counted:
    print(f"\n{'calls for memory a turn, and bytes in 100 turns; a workspace must need none':{width}}")
for row in counted:
    print(f"{row['name']:{width}}  {row['allocations']:9.2f} {row['bytes_per_100']:9.0f}  {verdict(row)}")
for line in left_out:
    print(line)

build = pathlib.Path(options.program).parent.parent
(build / "results.json").write_text(json.dumps({"machine": machine, "results": results, "figures": figures, "counted": counted}, indent=1) + "\n")

if options.document:
    rows = [f"| {r['name']} | {r['ours_ns']:.2f} | {r['peer_ns']:.2f} | {r['ratio']:.2f} | "
            f"{'' if r['target'] is None else r['target']} | {verdict(r)} |" for r in results]
    figure_rows = [f"| {f['name']} | {f['figure'].replace('_', ' ')} | {f['value']:.4f} | "
                   f"{'' if f['at_most'] is None else f['at_most']} | {verdict(f)} |" for f in figures]
    counted_rows = [f"| {c['name']} | {c['allocations']:.2f} | {c['bytes_per_100']:.0f} | {verdict(c)} |" for c in counted]
    text = f"""# Benchmarks

Written by `./run bench --document`; no number here is typed by hand. A ratio is the peer's time over ours, of medians of
{options.repetitions} interleaved runs in one process: above 1, ours is faster. Compare ratios, not times.

{machine['processor']}, {machine['cores']} cores, Linux {machine['kernel']}, {machine['date']}, tidemark {machine['version']}.

| work | ours, ns | peer, ns | ratio | target | |
|---|---:|---:|---:|---:|---|
{chr(10).join(rows)}

Ours alone: seconds, and what else is counted.

| work | what | ours | at most | |
|---|---|---:|---:|---|
{chr(10).join(figure_rows)}

Calls for memory in a turn, once warm, and bytes asked for in 100 turns; a workspace must need none.

| work | calls | bytes in 100 | |
|---|---:|---:|---|
{chr(10).join(counted_rows)}

Repeat it: `./run bench`. Instructions, which do not depend on the machine's load: `./run bench --instructions`.
"""
    (here.parent / "docs" / "benchmarks.md").write_text(text)

sys.exit(1 if options.strict and any(result["met"] is False for result in results + figures + counted) else 0)
