#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmarks, ours and the peers' in random order, and prints each beside its target.

A ratio is the peer's value divided by ours in one repetition: above 1, ours is better. Ratios hardly depend on the
machine's load; times do. bench/main_rows.json has the main rows, which are measured by default and shown in docs/benchmarks.md;
bench/targets.json has all others. A row names a benchmark of ours, a peer (the best of several peers counts), a metric
and a target: a ratio, a limit, or a limit of nanoseconds more than the peer. A row of several benchmarks is their
geometric mean, or the worst of them. A target is met if the whole 95 % interval
of the row's median meets it, not met if no part of it does, and undecided otherwise. Writes results.json into the build folder.
"""
import argparse
import json
import math
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time
import typing

import document
import footprint
from environment import version_of_sources, with_peers

here = pathlib.Path(__file__).parent


class Trace(typing.NamedTuple):
    threads: int
    has_steps: bool = False


# The recorded traces of the repository.
RECORDED = {"clang_syntax": Trace(1), "lld_link": Trace(5), "torch_gpt": Trace(1, True), "torch_mlp": Trace(1, True)}

# Topics with their own programs, which take Google Benchmark's options: one runs on ranks, others in a
# process each.
PROGRAMS = {"mpi": "run_mpi_bench", "numpy": "run_numpy_bench", "programs": "programs/run_programs_bench"}

# Benchmarks that take minutes, with their number of repetitions. Each repetition has another seed and another
# order of rows or step. System calls are counted, and hardly vary. Benchmarks that take seconds run six times, because
# the interval of the median then has no less than 95 %, as with nine, but not with seven or eight.
LONG = {"planner/hard": 2, "planner/limit/any_lifetime/60000": 5, "planner/first_order/any_lifetime/1000000": 3,
        "programs/.*/system_calls": 2, "programs/(gradients|join|kd_tree)/.*": 6, "[a-z]+/replay/unet/manual_time": 6,
        "[a-z]+/handoff_memory": 6}

# Metrics that are counted by programs of their own.
COUNTED = {"footprint", "instructions"}


def misuse(sentence):
    print(sentence, file=sys.stderr)
    sys.exit(2)


def read_options():
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="all rows of these topics (default: the main rows)")
    parser.add_argument("--all", action="store_true", help="all rows of all topics")
    parser.add_argument("--filter", default="", help="only rows whose topic or name matches this regular expression")
    parser.add_argument("--repetitions", type=int, help="runs of each benchmark (default 9, and 6 with --all)")
    parser.add_argument("--seconds", type=float, default=0.05, help="length of a run (default 0.05)")
    parser.add_argument("--trace", type=pathlib.Path, action="append", default=[],
                        help="a further recorded trace for topic traces (format: docs/traces.md); may be repeated")
    parser.add_argument("--plan-seconds", type=float, default=60, metavar="SECONDS",
                        help="maximum search time of topic plan for each hard step, and for 60,000 blocks (default 60)")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is not met (undecided is not an error)")
    parser.add_argument("--document", action="store_true",
                        help="write docs/benchmarks.md and its charts; with --all, docs/benchmarks/all_rows.csv")
    options = parser.parse_args()
    if options.repetitions is None:
        options.repetitions = 6 if options.all else 9
    if options.repetitions < 1 or options.seconds < 0 or not 0 <= options.plan_seconds < math.inf:
        misuse("--repetitions is 1 or more, --seconds and --plan-seconds 0 or more")
    if options.document and (options.topics or options.filter or options.trace):
        misuse("--document takes no TOPIC, --filter or --trace: its rows are always the same")
    known = sorted({topic for file in ("main_rows.json", "targets.json") for topic, entry in topics_in(file).items() if entry["targets"]})
    for topic in options.topics:
        if topic not in known:
            misuse(f"there is no topic '{topic}'; there are {', '.join(known)}")
    try:
        re.compile(options.filter)
    except re.error as error:
        misuse(f"--filter '{options.filter}' is no regular expression: {error}")
    for path in options.trace:
        if not path.is_file():
            misuse(f"--trace {path}: there is no such file")
        if ":" in str(path.resolve()):
            misuse(f"--trace {path}: there may be no colon in its path, {path.resolve()}")
    return options


# ---- which rows ----------------------------------------------------------------------------------------------------

def topics_in(file):
    topics = json.loads((here / file).read_text())
    for entry in topics.values():
        entry["targets"] = [each for row in entry["targets"] for each in [row, *beside_mimalloc_3(row)]]
    return topics


def beside_mimalloc_3(row):
    """Returns the row beside mimalloc 3 of a row beside mimalloc 2: both are compared in the same benchmarks."""
    peer = row.get("peer")
    if not isinstance(peer, str) or not re.search(r"\bmimalloc/", peer):
        return []
    return [row | {"name": re.sub(r"\bmimalloc\b", "mimalloc 3", row["name"]), "peer": re.sub(r"\bmimalloc/", "mimalloc3/", peer)}]


def rows_wanted(options):
    """Returns the rows to measure as a list by topic. Rows of traces appear once for each trace."""
    traces = traces_of(options)
    files = ["main_rows.json", "targets.json"] if options.all or options.topics else ["main_rows.json"]
    wanted = {}
    for topic, entry in (item for file in files for item in topics_in(file).items()):
        if options.topics and topic not in options.topics:
            continue
        rows = [row for pattern in entry["targets"] for row in of_each_trace(pattern, traces)]
        rows = [row for row in rows if re.search(options.filter, topic) or re.search(options.filter, row["name"])]
        if rows:
            wanted.setdefault(topic, []).extend(rows)
    return wanted


def traces_of(options):
    """Returns the traces by name, with their number of threads and whether they have steps.

    The user's traces are read at once, so that their faults are reported early.
    """
    if not options.trace:
        return RECORDED
    known = footprint.traces(options.build / "bench/trace_footprint", environment(options))
    for path, trace in zip(options.trace, known[len(RECORDED):]):
        if trace["name"] != path.stem:
            print(f"{path} is called {trace['name']} here", file=sys.stderr)
        if trace["operations"] == 0:
            print(f"{path} has no events, of which there is nothing to tell", file=sys.stderr)
    return RECORDED | {trace["name"]: Trace(trace["threads"], trace["steps"] > 0) for trace in known[len(RECORDED):]
                       if trace["operations"] > 0}


def of_each_trace(row, traces):
    """Expands rows: {trace} stands for one row of each trace, {threaded_trace} for each trace of several threads,
    and {stepped_trace} for each trace with steps."""
    takes = {"{trace}": lambda trace: True, "{threaded_trace}": lambda trace: trace.threads > 1,
             "{stepped_trace}": lambda trace: trace.has_steps}
    place = next((place for place in takes if place in row["name"]), None)
    if place is None:
        return [row]
    return [{key: value.replace(place, trace) if isinstance(value, str) else value for key, value in row.items()}
            for trace, known in traces.items() if takes[place](known)]


def names_of(row):
    """Returns the benchmarks of a row as a list for each side: tidemark's, then each peer's. An element of `of` takes
    the place of {} on all sides; a list of two has another text for the peers."""
    peers = row.get("peer", [])
    of = [size if isinstance(size, list) else [size, size] for size in row.get("of", [""])]
    return [[row["ours"].replace("{}", str(size)) for size, _ in of],
            *([peer.replace("{}", str(size)) for _, size in of] for peer in ([peers] if isinstance(peers, str) else peers))]


def parts_of(row):
    """Returns the row, or a row of each benchmark if the worst of them counts."""
    if not row.get("worst"):
        return [row]
    return [row | {"of": [size], "part": str(size[0] if isinstance(size, list) else size)} for size in row["of"]]


def compared_together(rows):
    """Returns the benchmarks of these rows as disjoint sets. Benchmarks that are compared are in one set."""
    together = []
    for row in (part for row in rows for part in parts_of(row)):
        names = {name for side in names_of(row) for name in side}
        joined = [some for some in together if some & names]
        together = [some for some in together if not some & names] + [names.union(*joined)]
    return together


# ---- running -------------------------------------------------------------------------------------------------------

def environment(options, order=0):
    return with_peers(TIDEMARK_BENCH_TRACES=":".join(str(path.resolve()) for path in options.trace),
                      TIDEMARK_BENCH_PLAN_SECONDS=str(options.plan_seconds), TIDEMARK_BENCH_ORDER=str(order))


def plain_name(run_name):
    """Returns a benchmark's name without the settings that Google Benchmark appends."""
    return re.sub(r"/(min_time|iterations):[0-9.]+", "", run_name)


def run(options, names, repetition):
    """Returns Google Benchmark's report of one repetition of these benchmarks, in random order."""
    pattern = "^(" + "|".join(map(re.escape, sorted(names))) + ")(/min_time:[0-9.]+|/iterations:[0-9]+)*$"
    topic = next(iter(names)).split("/")[0]
    program = options.build / "bench" / PROGRAMS.get(topic, "tidemark_bench")
    if topic in PROGRAMS and not program.exists():  # its requirements are not installed
        return {"benchmarks": [], "context": {}}
    done = subprocess.run([program, "--benchmark_filter=" + pattern,
                           "--benchmark_repetitions=1", f"--benchmark_min_time={options.seconds}",
                           "--benchmark_enable_random_interleaving=true", "--benchmark_format=json"],
                          capture_output=True, text=True, env=environment(options, order=repetition))
    if done.returncode != 0:
        sys.exit(f"the benchmarks failed: {done.stderr}")
    return json.loads(done.stdout) if done.stdout else {"benchmarks": [], "context": {}}


def measure(options, wanted):
    """Runs all wanted rows. Returns the repetitions and the errors by benchmark name, and the context.

    Compared benchmarks run in one process once per repetition, so that they meet the same load. Google
    Benchmark's own repetitions would not: it shuffles all of them, and equal repetitions of both sides may
    run minutes apart.
    """
    together = [(topic, names) for topic, rows in wanted.items()
                for names in compared_together(row for row in rows if row["metric"] not in COUNTED)]
    samples, errors, context = {}, {}, {}
    for repetition in range(options.repetitions):
        topic = None
        for next_topic, names in together:
            if repetition >= min((most for name, most in LONG.items() if any(map(re.compile(name).fullmatch, names))),
                                 default=options.repetitions):
                continue
            if next_topic != topic:
                topic = next_topic
                print(f"repetition {repetition + 1} of {options.repetitions}: {topic}", file=sys.stderr, flush=True)
            report = run(options, names, repetition)
            context |= report["context"]
            for row in report["benchmarks"]:
                if row.get("error_occurred"):
                    errors[plain_name(row["run_name"])] = row["error_message"]
                else:
                    samples.setdefault(plain_name(row["run_name"]), []).append(row)
    return {name: rows for name, rows in samples.items() if name not in errors}, errors, context


def measure_footprints(options, wanted):
    """Does for footprints what measure() does for other rows."""
    names = {name for rows in wanted.values() for row in rows if row["metric"] == "footprint"
             for side in names_of(row) for name in side}
    if not names:
        return {}, {}
    print(f"footprints: {len(names)} of traces", file=sys.stderr, flush=True)
    try:
        return footprint.measure(options.build / "bench/trace_footprint", names, environment(options)), {}
    except RuntimeError as error:
        return {}, {name: str(error) for name in names}


def measure_instructions(options, wanted):
    """Does for instructions what measure() does for other rows. Each run counts the same, so that one run has an interval."""
    names = sorted({name for rows in wanted.values() for row in rows if row["metric"] == "instructions"
                    for side in names_of(row) for name in side})
    if not names:
        return {}, {}
    print(f"instructions: {len(names)} loops", file=sys.stderr, flush=True)
    try:
        done = subprocess.run([here / "instructions", "--program", options.build / "bench/instruction_loops",
                               *(name.removeprefix("instructions/") for name in names)], capture_output=True, text=True)
    except OSError as error:
        return {}, {name: str(error) for name in names}
    counted = dict(re.findall(r"^(\w+) +([0-9.]+)", done.stdout, re.M))
    why = (done.stderr.strip() or "bench/instructions counted nothing").splitlines()[-1]
    return ({name: [float(count)] * 2 for name in names if (count := counted.get(name.removeprefix("instructions/")))},
            {name: why for name in names if name.removeprefix("instructions/") not in counted})


# ---- judging -------------------------------------------------------------------------------------------------------

def nanoseconds(run):
    # The time of a row that counts items is per item.
    rate = run.get("items_per_second")
    return 1e9 / rate if rate else run["cpu_time"]


def value(metric, run):
    if metric == "time":
        return nanoseconds(run)
    return nanoseconds(run) / 1e9 if metric == "seconds" else run[metric]


def mean(values):
    """Returns the geometric mean, for rows of several sizes."""
    return values[0] if len(values) == 1 else math.exp(sum(map(math.log, values)) / len(values))


def rounded(number):
    return None if number is None else float(f"{number:.5g}")


def interval_of_median(values):
    """Returns the 95 % interval by the percentile bootstrap, or None for a single value, which has no
    spread."""
    n, ordered = len(values), sorted(values)
    if n < 2:
        return None

    # Computed without sampling, because the distribution of a resample's median is known (Efron, 1979). The
    # median is at most the k-th value if at least half of n draws are, each with probability k / n. For an
    # even n this is the lower of the two medians, and the interval is slightly longer.
    def chance_of_at_most(k):
        return sum(math.comb(n, draws) * (k / n)**draws * (1 - k / n)**(n - draws) for draws in range((n + 1) // 2, n + 1))

    k = next(k for k in range(1, n) if chance_of_at_most(k) > 0.025)
    return [ordered[k - 1], ordered[n - k]]


def verdict(interval, least=-math.inf, most=math.inf):
    if interval is None:
        return "undecided"
    meets = [least <= end <= most for end in interval]
    return "met" if all(meets) else "undecided" if any(meets) else "not met"


def judge(topic, row, ours, peer=None):
    """Returns a row of the results. `ours` and `peer` have a value for each repetition; `peer` may be
    empty."""
    ratios = [its / own for own, its in zip(ours, peer, strict=True)] if peer and all(ours) else None
    if row.get("at_most") is not None:
        measured, target, limits = ours, f"<= {row['at_most']:g}", {"most": row["at_most"]}
    elif row.get("adds_at_most") is not None:
        measured = [own - its for own, its in zip(ours, peer, strict=True)]
        target, limits = f"+{row['adds_at_most']:g}", {"most": row["adds_at_most"]}
    elif row.get("ratio") is not None:
        measured, target, limits = ratios, f"{row['ratio']:g} x", {"least": row["ratio"]}
    else:
        measured, target, limits = ratios or ours, None, None
    names = ("ours_ns", "peer_ns") if row["metric"] == "time" else ("ours", "peer")
    medians = [rounded(statistics.median(values) if values else None) for values in (ours, peer, ratios, measured)]
    interval = interval_of_median(measured)
    # A geometric mean may be off in the last digit, on either side of a target.
    interval = interval and [rounded(end) for end in interval]
    return {"topic": topic, "name": row["name"], "metric": row["metric"], names[0]: medians[0], names[1]: medians[1],
            "ratio": medians[2], "measured": medians[3], "interval": interval, "pairs": len(measured),
            "target": target, "verdict": limits and verdict(interval, **limits)}


class left_out(Exception):
    """Why a row has no result."""


def result_of(topic, row, samples, counted, errors):
    """Returns the result of a row, by the best of its peers."""
    known = counted if row["metric"] in COUNTED else samples
    ours, *peers = names_of(row)
    there = [peer for peer in peers if all(name in known for name in peer)]
    missing = [name for name in ours if name not in known] or ([] if there or not peers else peers[0])
    if missing:
        raise left_out("; ".join(errors.get(name, f"{name} is not in this build") for name in missing))
    of = known.get if row["metric"] in COUNTED else lambda name: [value(row["metric"], run) for run in samples[name]]
    own, *others = ([mean(sizes) for sizes in zip(*map(of, side), strict=True)] for side in (ours, *there))
    best = min(range(len(others)), key=lambda i: statistics.median(others[i]), default=None)
    result = judge(topic, row, own, best is not None and others[best])
    if "part" in row:
        result["part"] = row["part"]
    if len(peers) > 1:
        parts = zip(ours[0].split("/"), there[best][0].split("/"))
        result["best_peer"] = next(its for own_part, its in parts if own_part != its)
    return result


def worst(topic, row, *measured):
    """Returns the result of a row, of its worst benchmark by the median if the worst counts."""
    results = [result_of(topic, part, *measured) for part in parts_of(row)]
    return (max if row.get("ratio") is None else min)(results, key=lambda result: result["measured"])


def results_of(wanted, *measured):
    """Returns the results, and a line for each row without a result."""
    results, without = [], []
    for topic, rows in wanted.items():
        for row in rows:
            try:
                results.append(worst(topic, row, *measured))
            except left_out as why:
                without.append(f"left out: {row['name']}: {why}")
    return results, without


# ---- the report ----------------------------------------------------------------------------------------------------

def machine(options, seconds):
    found = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return {"processor": found[1] if found else platform.processor(), "cores": os.cpu_count(), "system": platform.system(),
            "kernel": platform.release(), "repetitions": options.repetitions, "seconds": options.seconds,
            "minutes": round(seconds / 60, 1)}


def versions(context):
    prefix = "version of "
    return {"tidemark": version_of_sources()} | {
        key.removeprefix(prefix): text for key, text in context.items() if key.startswith(prefix)}


def print_table(results):
    width = max(len(result["name"]) for result in results)
    topic = None
    for result in results:
        if result["topic"] != topic:
            topic = result["topic"]
            print(f"\n{topic:{width}}  {'ours':>10} {'peer':>10} {'ratio':>7} {'95 % interval':>18} {'target':>8}")
        print(f"{result['name']:{width}}  {document.number(document.ours(result)):>10} "
              f"{document.number(document.peer(result)):>10} {document.number(result['ratio']):>7} "
              f"{document.interval(result):>18} {result['target'] or '':>8}  {document.verdict(result)}")
    print(f"\n{document.summary(results)}. A time is in ns, `seconds` in s. An interval is that of what the target limits: "
          "the ratio, ours (<=), or ours less the peer's (+).")


def main():
    options = read_options()
    wanted = rows_wanted(options)
    if not wanted:
        sys.exit(f"no topic and no row matches '{options.filter}'")
    begin = time.monotonic()
    samples, errors, context = measure(options, wanted)
    footprints, refused = measure_footprints(options, wanted)
    instructions, uncounted = measure_instructions(options, wanted)
    seconds = time.monotonic() - begin
    errors |= refused | uncounted
    results, without = results_of(wanted, samples, footprints | instructions, errors)
    if results:
        print_table(results)
    missing = context.get("left out", "")
    for line in ([f"left out: {missing}"] if missing else []) + without:
        print(line)
    report = {"machine": machine(options, seconds) | {"date": context.get("date", "")[:10], "load": context.get("load_avg")},
              "versions": versions(context), "results": results, "left_out": without}
    (options.build / "results.json").write_text(json.dumps(report, indent=1) + "\n")
    if options.document:
        (document.write_all_rows if options.all else document.write)(report, here.parent / "docs")
    unmet = any(result["verdict"] == "not met" for result in results) or bool(errors) or not results
    sys.exit(1 if options.strict and unmet else 0)


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:  # a trace that cannot be measured
        print(error, file=sys.stderr)
        sys.exit(2)
