#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/benchmarks.md and its charts from the results of ./run bench; no number in them is typed by hand,
except in the reasons of bench/targets.json.

usage: bench/document.py RESULTS.json FOLDER

The results are kept beside the charts, in FOLDER/benchmarks/results.json; with them the counts of instructions, if
./run bench --instructions has made some.
"""
import fnmatch
import json
import pathlib
import re
import sys

here = pathlib.Path(__file__).parent
COLOURS = {"met": "#2a7f62", "undecided": "#e3b23c", "not met": "#d1603d", None: "#8a94a6"}
HEAD = """# Benchmarks

Written by `./run bench --document` from [benchmarks/results.json](benchmarks/results.json). What a row compares runs {repetitions}
times, {seconds:g} s each time (containers and lists: a fixed number of rounds), each time in a new process and in random order; one
of footprints runs three times. A ratio is the peer's value over ours in one such repetition, and the table has its median:
above 1, ours is better. Compare ratios, not times. A target is a ratio (`2 x`), a limit (`<= 3`) or what ours may add to the peer
(`+4`), in the unit of its row: nanoseconds where the metric is time. The 95 % interval is that of the median of what the target
limits. A target is *met* if the whole interval meets it, *not met* if none of it does, and *undecided* if the interval contains it
([decision 24](decisions/0024-how-speed-is-measured.md)); three runs make an interval of 75 %. Memory of devices is measured apart: [gpu.md](gpu.md).

{summary}{where}.{of_medians}

| | |
|---|---|
| machine | {processor}, {cores} cores, {system} {kernel}, {date}, load {load} |
| tidemark | {tidemark} |
| peers | {peers} |

Repeat it with `./run bench`; `./run bench TOPIC` runs a part, `--trace FILE` adds a recorded trace of your own.
Instructions, which do not depend on the machine's load: `./run bench --instructions`.
"""


# ---- what the table of ./run bench shows as well -------------------------------------------------------------------

def ours(result):
    return result["ours_ns" if result["metric"] == "time" else "ours"]


def peer(result):
    return result["peer_ns" if result["metric"] == "time" else "peer"]


def number(value):
    """Two decimals; none from 1,000 on, and four digits that count below 0.01."""
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}" if value and abs(value) < 0.01 else f"{value:.2f}"


def interval(result):
    return " to ".join(map(number, result["interval"] or []))


def verdict(result):
    return "NOT MET" if result["verdict"] == "not met" else result["verdict"] or ""


def summary(results):
    judged = [result["verdict"] for result in results if result["verdict"]]
    met, undecided, not_met = map(judged.count, ("met", "undecided", "not met"))
    return f"{met} of {len(judged)} targets are met, {undecided} are undecided, {not_met} are not met"


# ---- charts --------------------------------------------------------------------------------------------------------

def pyplot():
    """Matplotlib, set up to draw the same file from the same results."""
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "tidemark", "svg.fonttype": "none", "font.size": 8, "axes.spines.top": False,
                            "axes.spines.right": False}
    import matplotlib.pyplot
    return matplotlib.pyplot


def save(figure, path):
    figure.savefig(path, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
    pyplot().close(figure)


def draw_ratios(results, path):
    """A bar a row: how many times better than its peer; a tick where its target is, a line for the interval."""
    rows = [result for result in results if result["ratio"]][::-1]
    if not rows:
        return False
    plot = pyplot()
    figure, axes = plot.subplots(figsize=(7, 0.6 + 0.19 * len(rows)))
    places = range(len(rows))
    axes.barh(places, [row["ratio"] - 1 for row in rows], left=1, height=0.7, color=[COLOURS[row["verdict"]] for row in rows])
    for place, row in zip(places, rows):
        wanted = re.fullmatch(r"([0-9.]+) x", row["target"] or "")
        if wanted:
            axes.plot([float(wanted[1])] * 2, [place - 0.4, place + 0.4], color="black", linewidth=1.5)
        if row["interval"] and (wanted or not row["target"]):  # else it is not the ratio's
            axes.plot(row["interval"], [place] * 2, color="black", linewidth=0.6)
    axes.axvline(1, color="black", linewidth=0.6)
    axes.set_xscale("log")
    low, high = (edge(row["ratio"] for row in rows) for edge in (min, max))
    ticks = [tick for tick in (0.01, 0.03, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 100, 300, 1000) if low / 2 <= tick <= high * 2]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(places, [row["name"] for row in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel("times better than the peer (green: target met, yellow: undecided, orange: not met, grey: no target;\n"
                    "upright line: the target, level line: the 95 % interval)")
    save(figure, path)
    return True


def draw_sizes(topic, medians, path):
    """A panel a work, a line an allocator: nanoseconds by size. For benchmarks named ALLOCATOR/topic/WORK/SIZE."""
    works = {}
    for name, time in medians.items():
        parts = re.fullmatch(rf"([^/]+)/{topic}/([^/]+)/([0-9]+)", name)
        if parts:
            works.setdefault(parts[2], {}).setdefault(parts[1], []).append((int(parts[3]), time))
    lines = sorted({who for work in works.values() for who in work})
    if len(lines) < 2:  # nothing is compared: benchmarks of another topic are so called
        return False
    plot = pyplot()
    columns = min(3, len(works))
    figure, panels = plot.subplots(-(-len(works) // columns), columns, figsize=(9, 2.3 * -(-len(works) // columns)), squeeze=False)
    for panel in panels.flat[len(works):]:
        panel.set_visible(False)
    for panel, (work, of_whom) in zip(panels.flat, works.items()):
        for who in lines:
            points = sorted(of_whom.get(who, []))
            is_ours = who.startswith(("arena", "pool"))
            panel.plot(*zip(*points) if points else ([], []), label=who.replace("_", " "), color=f"C{lines.index(who) % 10}",
                       linewidth=1.8 if is_ours else 0.9, linestyle="-" if is_ours else "--")
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_title(work.replace("_", " "))
    figure.supxlabel("size")
    figure.supylabel("ns")
    figure.legend(*panels.flat[0].get_legend_handles_labels(), loc="lower center", ncol=5, bbox_to_anchor=(0.5, 1))
    figure.tight_layout()
    save(figure, path)
    return True


def draw_programs(medians, path):
    """A group of bars a program: a step's time on each memory over that on malloc. For benchmarks named programs/PROGRAM/MEMORY."""
    times = {}
    for name, time in medians.items():
        parts = re.fullmatch("programs/([^/]+)/([^/]+)/real_time", name)
        if parts:
            times.setdefault(parts[1], {})[parts[2]] = time
    times = {program: of for program, of in times.items() if "malloc" in of}
    memories = [memory for memory in ("mimalloc", "jemalloc", "tcmalloc", "std_monotonic", "std_pool", "arena", "pool")
                if any(memory in of for of in times.values())]
    if not times or not memories:
        return False
    plot = pyplot()
    figure, axes = plot.subplots(figsize=(9, 3))
    width = 0.8 / len(memories)
    for k, memory in enumerate(memories):
        places = [(i + k * width, of[memory] / of["malloc"]) for i, of in enumerate(times.values()) if memory in of]
        axes.bar(*zip(*places), width=width, label=memory.replace("_", " "), color=f"C{k}",
                 hatch="//" if memory in ("arena", "pool") else None, edgecolor="white", linewidth=0.3)
    axes.axhline(1, color="black", linewidth=0.6)
    axes.set_xticks([i + 0.4 - width / 2 for i in range(len(times))], [program.replace("_", " ") for program in times])
    axes.set_ylabel("time of a step, on malloc 1")
    axes.legend(loc="lower center", ncol=len(memories), bbox_to_anchor=(0.5, 1), frameon=False)
    save(figure, path)
    return True


# ---- the page ------------------------------------------------------------------------------------------------------

def section(topic, about, report, charts):
    """A topic: what it measures, its charts (of which it draws those there is something for), its table."""
    results = [result for result in report["results"] if result["topic"] == topic]
    lines = [f"## {topic.replace('_', ' ').capitalize()}", "", about, ""]
    if topic in report.get("later", {}):
        # A note, such as that the code has changed, is of these results: it goes when the topic is measured anew.
        when = report["later"][topic]
        said = "Measured later than the others: {date}, {repetitions} repetitions of {seconds:g} s, tidemark {tidemark}. {note}"
        lines += [said.format(**{"note": ""} | when).rstrip(), ""]
    kinds = [("", "ratios", lambda path: draw_ratios(results, path)),
             ("_sizes", "times by size", lambda path: draw_sizes(topic, report["medians_ns"], path))]
    if topic == "programs":  # each on so many memories that a bar for each ratio would fill a page
        kinds = [("", "times by memory", lambda path: draw_programs(report["medians_ns"], path))]
    for suffix, what, draws in kinds:
        if draws(charts / f"{topic}{suffix}.svg"):
            lines += [f"![{topic}: {what}](benchmarks/{topic}{suffix}.svg)", ""]
    lines += ["| work | metric | ours | peer | ratio | 95 % interval | target | |", "|---|---|---:|---:|---:|---:|---:|---|"]
    usual = max((result["pairs"] or 0 for result in results), default=0)
    runs = [f" ({result['pairs']} runs)" if 1 < (result["pairs"] or 0) < usual else "" for result in results]
    lines += [f"| {result['name']}{of_runs} | {result['metric'].replace('_', ' ')} | {number(ours(result))} | {number(peer(result))} | "
              f"{number(result['ratio'])} | {interval(result)} | {result['target'] or ''} | {verdict(result)} |"
              for result, of_runs in zip(results, runs)]
    return "\n".join(lines) + "\n"


def measured(result):
    """In the form of the target: 1.78 x, +12.10, 3.14."""
    shown = number(result["measured"])
    return shown + " x" if result["target"].endswith("x") else f"+{shown}" if result["target"].startswith("+") else shown


def reason(entry, name):
    """Why a row of this topic is not met: `why` has reasons by the names of rows, as patterns of shells."""
    return next((why for rows, why in entry.get("why", {}).items() if fnmatch.fnmatchcase(name, rows)), "no reason known yet")


def medians_alone(results):
    """Which verdicts are of medians alone."""
    of_medians = sum(result["verdict"] in ("met", "not met") and result["interval"] is None for result in results)
    return "" if not of_medians else (
        f"\n\n{of_medians} of these verdicts were recorded before repetitions were paired: their ratios are of two medians of "
        "interleaved runs,\nthey have no intervals, and a row near its target may change sides from run to run.")


def unmet(results, topics):
    """The targets that are not met, with the reasons: behind the charts, because it is long."""
    rows = [f"| {result['topic'].replace('_', ' ')} | {result['name']} | {measured(result)} | {interval(result)} | "
            f"{result['target']} | {reason(topics.get(result['topic'], {}), result['name'])} |"
            for result in results if result["verdict"] == "not met"]
    return "" if not rows else "\n".join(
        ["", "## Not met", "", "| topic | row | measured | 95 % interval | target | reason |", "|---|---|---:|---:|---:|---|", *rows, ""])


def instructions(counts):
    """What fast paths take beside the peers', counted."""
    def misses(row):
        return " | ".join(number(row[of]) if of in row else "not counted" for of in ("d1_misses", "ll_misses"))

    lines = ["## Instructions", "", "Counted by callgrind over an empty loop (`./run bench --instructions`), which does not "
             "depend on the machine's load.\nMisses are those of data in a simulated cache of 32 KiB (D1) and one of 8 MiB (LL).", "",
             "| work | ours | D1 misses | LL misses | limit |", "|---|---:|---:|---:|---:|"]
    lines += [f"| {case.replace('_', ' ')} | {row['counted']:.2f} | {misses(row)} | {row['limit'] or ''} |"
              for case, row in counts["cases"].items()]
    lines += ["", "| work | ours | D1 misses | LL misses | peer | the peer's | D1 misses | LL misses | ratio |",
              "|---|---:|---:|---:|---|---:|---:|---:|---:|"]
    for case, peers in counts["beside"].items():
        own = counts["cases"][case]
        lines += [f"| {case.replace('_', ' ')} | {own['counted']:.2f} | {misses(own)} | {name.replace('_', ' ')} | "
                  f"{its['counted']:.2f} | {misses(its)} | {its['counted'] / own['counted']:.2f} |"
                  for name, its in peers.items() if its is not None]
    return "\n".join(lines) + "\n"


def with_topics(folder, report, topics):
    """The report of the page in `folder`, with these topics and their rows from a later one."""
    before = json.loads((folder / "benchmarks/results.json").read_text())
    measured = tuple(f"left out: {row['name']}: " for rows in topics.values() for row in rows)
    others = [line for line in before["left_out"] if not line.startswith(measured)]
    when = {of: report["machine"][of] for of in ("date", "repetitions", "seconds")} | {"tidemark": report["versions"]["tidemark"]}
    return before | {
        "results": [result for result in before["results"] if result["topic"] not in topics] + report["results"],
        "left_out": others + report["left_out"],
        "medians_ns": before["medians_ns"] | report["medians_ns"],
        "later": before.get("later", {}) | dict.fromkeys(topics, when)}


def write(report, folder):
    pyplot()  # fails before anything is deleted, where matplotlib is not installed
    charts = folder / "benchmarks"
    charts.mkdir(exist_ok=True)
    for old in charts.glob("*.svg"):
        old.unlink()
    (charts / "results.json").write_text(json.dumps(report, indent=1) + "\n")
    topics = json.loads((here / "targets.json").read_text())
    versions, missed = dict(report["versions"]), unmet(report["results"], topics)
    text = HEAD.format(**report["machine"] | {"load": ", ".join(f"{load:.2f}" for load in report["machine"]["load"] or [])},
                       summary=summary(report["results"]), of_medians=medians_alone(report["results"]),
                       where=" ([which, and why](#not-met))" if missed else "",
                       tidemark=versions.pop("tidemark"), peers=", ".join(f"{of} {is_}" for of, is_ in versions.items()))
    if report["left_out"]:
        text += "\nLeft out of this run:\n\n" + "".join(f"- {line.removeprefix('left out: ')}\n" for line in report["left_out"])
    for topic, entry in topics.items():
        if any(result["topic"] == topic for result in report["results"]):
            text += "\n" + section(topic, entry["about"], report, charts)
    text += missed
    if "instructions" in report:
        text += "\n" + instructions(report["instructions"])
    (folder / "benchmarks.md").write_text(text)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    write(json.loads(pathlib.Path(sys.argv[1]).read_text()), pathlib.Path(sys.argv[2]))
