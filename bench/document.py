#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/benchmarks.md, docs/benchmarks/reasons.md and the charts from the results of ./run bench. Every number on the
pages comes from the results, except targets, sentences and reasons, which are in bench/main_rows.json.

usage: bench/document.py RESULTS.json FOLDER

The results are copied to FOLDER/benchmarks/results.json.
"""
import csv
import json
import pathlib
import sys

here = pathlib.Path(__file__).parent
COLOURS = {"met": "#2a7f62", "undecided": "#e3b23c", "not met": "#d1603d"}
# Release years of the peers' versions in Debian 12 and of the pinned wheels.
YEARS = {"boost_pool 1.74": 2020, "foonathan_pool 0.7.2": 2022, "jemalloc 5.3.0": 2022, "malloc glibc 2.36": 2022,
         "mimalloc 2.0.9": 2022, "mimalloc3 3.4.3": 2026, "protobuf_arena 3.21.12": 2022, "tcmalloc 2.10": 2022,
         "std_pool libstdc++ 20220819": 2022, "std_synchronized_pool libstdc++ 20220819": 2022, "llvm_bump 22.1.8": 2026,
         "NumPy 1.24.2": 2023}
HEAD = """# Benchmarks

{summary} ([the reasons](benchmarks/reasons.md)).

Each of the {count} main rows is a speed target of the design, a claim of the README, a goal of version 0.2, or a comparison that was
lost before; other such targets are [retired](benchmarks/reasons.md#retired-targets). `./run bench --document` measures the rows
and writes this page; this run took {minutes:g} minutes.

A value is the median of {repetitions} runs of {seconds:g} s (6 if a run takes seconds), ours and the peer in one process
([decision 24](decisions/0024-measurement-of-speed.md)). A ratio is the peer's value divided by ours in one run: above 1, ours is
better. A target is a ratio (`2 x`), a limit (`<= 3`) or a limit of what ours adds to the peer (`+4`); times are in nanoseconds.
A target is *met* if the whole 95 % interval of the median meets it (green bars), *not met* if no part does (red), and *undecided*
otherwise. The quotient of the medians *ours* and *peer* may differ from the median ratio.

| | |
|---|---|
| machine | {processor}, {cores} cores, {system} {kernel}, {date}, load {load} |
| tidemark | {tidemark} |
| peers | {peers} |

`./run bench --all` measures [all rows](benchmarks/all_rows.csv), `./run bench TOPIC` one topic; `--instructions` counts instructions.
"""

REASONS = """# Why targets are missed

The reasons of the rows of [the benchmarks](../benchmarks.md) that miss their target or are undecided. Instructions and cache misses
are counted by callgrind. `bench/document.py` writes this page.

"""
RETIRED = """
## Retired targets

The interface or the hardware makes these targets impossible, or they need a GPU.

"""


# ---- shared with the table of ./run bench --------------------------------------------------------------------------

def ours(result):
    return result["ours_ns" if result["metric"] == "time" else "ours"]


def peer(result):
    return result["peer_ns" if result["metric"] == "time" else "peer"]


def number(value):
    """Formats a number with two decimals; none from 1,000 on, and four significant digits below 0.01."""
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}" if value and abs(value) < 0.01 else f"{value:.2f}"


def share_of_time(results):
    """Returns the smallest and largest time of ours for whole programs, relative to the peer's: 0.45 to 0.99."""
    shares = [1 / result["ratio"] for result in results if result["topic"] == "programs" and result["metric"] == "time"]
    return f"{min(shares):.2f} to {max(shares):.2f}" if shares else ""


def interval(result):
    return "–".join(map(number, result["interval"] or []))


def verdict(result):
    return "NOT MET" if result["verdict"] == "not met" else result["verdict"] or ""


def summary(results):
    judged = [result["verdict"] for result in results if result["verdict"]]
    met, undecided, not_met = map(judged.count, ("met", "undecided", "not met"))
    return f"{met} of {len(judged)} targets are met, {undecided} are undecided, {not_met} are not met"


# ---- charts --------------------------------------------------------------------------------------------------------

def pyplot():
    """Returns matplotlib, configured to draw equal files from equal results."""
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "tidemark", "svg.fonttype": "none", "font.size": 8, "axes.spines.top": False,
                            "axes.spines.right": False}
    import matplotlib.pyplot
    return matplotlib.pyplot


def of_target(result, measured):
    """Returns the result relative to its target: from 1 on, the target is met. Limits of 0 count from one."""
    kind, limit = result["target"][0], float(result["target"].strip("<=+ x"))
    if kind in "<+":
        return (limit + (limit == 0)) / max(measured + (limit == 0), limit / 1000)
    return measured / limit


def draw(results, path):
    """Draws a bar for each row, with a line for the interval."""
    plot = pyplot()
    figure, axes = plot.subplots(figsize=(7, 0.5 + 0.19 * len(results)))
    rows = results[::-1]
    places = range(len(rows))
    axes.barh(places, [of_target(row, row["measured"]) - 1 for row in rows], left=1, height=0.7,
              color=[COLOURS[row["verdict"]] for row in rows])
    for place, row in zip(places, rows):
        if row["interval"]:
            axes.plot([of_target(row, end) for end in row["interval"]], [place] * 2, color="black", linewidth=0.6)
    axes.axvline(1, color="black", linewidth=0.6)
    axes.set_xscale("log")
    low, high = (edge([1, *(of_target(row, row["measured"]) for row in rows)]) for edge in (min, max))
    ticks = [tick for tick in (0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 100, 1000) if low / 2 <= tick <= high * 2]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(places, [row["name"] for row in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    figure.savefig(path, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
    plot.close(figure)


# ---- the page ------------------------------------------------------------------------------------------------------

def measured(result):
    """Formats a value like its target: 1.78 x, +12.10, 3.14."""
    shown = number(result["measured"])
    return shown + " x" if result["target"].endswith("x") else f"+{shown}" if result["target"].startswith("+") else shown


def table(results):
    head = ["| topic | row | ours | peer | measured | 95 % interval | target | |", "|---|---|---:|---:|---:|---:|---:|---|"]

    def named(result):
        unit = {"grown_kib": "KiB", "peak_mib": "MiB", "resident_mib": "MiB"}.get(result["metric"])
        of = ", ".join(result[key] for key in ("part", "best_peer") if key in result) or unit
        return f"{result['name']} ({of})" if of else result["name"]

    return "\n".join(head + [
        f"| {result['topic']} | {named(result)} | "
        f"{number(ours(result))} | {number(peer(result))} | {measured(result)} | "
        f"{interval(result)} | {result['target']} | {verdict(result)} |" for result in results]) + "\n"


def unmet(results, topics):
    """Returns the rows that miss their target or are undecided, with the reasons."""
    rows = [(result, row.get("why", "The cause is not known.")) for result in results if result["verdict"] != "met"
            for row in topics[result["topic"]]["targets"] if row["name"] == result["name"]]
    by_reason = {}
    for result, reason in rows:
        by_reason.setdefault(reason, []).append(f"**{result['topic']}: {result['name']}**")
    return "".join(f"- {', '.join(named)}: {reason}\n" for reason, named in by_reason.items())


def write(report, folder):
    pyplot()  # fails before anything is deleted if matplotlib is missing
    charts = folder / "benchmarks"
    charts.mkdir(exist_ok=True)
    for old in charts.glob("*.svg"):
        old.unlink()
    (charts / "results.json").write_text(json.dumps(report, indent=1) + "\n")
    topics, versions = json.loads((here / "main_rows.json").read_text()), dict(report["versions"])
    tidemark = ", ".join(versions.pop(name) for name in ("tidemark", "compiler") if name in versions)
    named = [f"{peer} {version}" for peer, version in versions.items()]
    dated = [f"{name} ({YEARS[name]})" if name in YEARS else name for name in named]
    text = HEAD.format(**report["machine"] | {"load": ", ".join(f"{load:.2f}" for load in report["machine"]["load"] or [])},
                       summary=summary(report["results"]), count=len(report["results"]), tidemark=tidemark, peers=", ".join(dated))
    for topic, entry in topics.items():
        results = [result for result in report["results"] if result["topic"] == topic]
        about = entry["about"].replace("SHARE_OF_TIME", share_of_time(results))
        if results:
            draw(results, charts / f"{topic}.svg")
            text += f"\n## {entry['title']}\n\n{about}\n\n![{topic}: chart](benchmarks/{topic}.svg)\n"
        elif not entry["targets"]:
            text += f"\n## {entry['title']}\n\n{about}\n"
    text += ("\n## The main rows\n\nA row of several sizes is their geometric mean, or the worst of them if its name says so. Names of the worst, "
             "and of\nthe best of several peers by its median, are in parentheses.\n\n" + table(report["results"]))
    if report["left_out"]:
        text += "\nNot measured in this run:\n\n" + "".join(f"- {line.removeprefix('left out: ')}\n" for line in report["left_out"])
    (folder / "benchmarks.md").write_text(text)
    retired = "".join(f"- {entry['title']}: {target}\n" for entry in topics.values() for target in entry.get("retired", []))
    (charts / "reasons.md").write_text(REASONS + (unmet(report["results"], topics) or "All targets are met.\n") + RETIRED + retired)


def write_all_rows(report, folder):
    """Returns the rows of ./run bench --all as a table of comma-separated values."""
    with open(folder / "benchmarks/all_rows.csv", "w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["topic", "row", "metric", "ours", "peer", "ratio", "low", "high", "target", "verdict", "date", "tidemark"])
        for result in report["results"]:
            rows.writerow([result["topic"], result["name"], result["metric"], ours(result), peer(result), result["ratio"],
                           *(result["interval"] or ["", ""]), result["target"], result["verdict"],
                           report["machine"]["date"], report["versions"]["tidemark"]])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    write(json.loads(pathlib.Path(sys.argv[1]).read_text()), pathlib.Path(sys.argv[2]))
