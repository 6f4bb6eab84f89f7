#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks of ./run bench: every benchmark runs, the files of rows name only existing benchmarks, and rows are
judged as documented.

usage: compare_check.py BUILD-DIRECTORY CASE

A stand-in program reports the judged rows, because verdicts must not depend on the speed of the machine.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

root = pathlib.Path(__file__).parents[2]
build = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(root / "bench"))
import compare  # noqa: E402
import document  # noqa: E402
import environment  # noqa: E402

# Reports the requested benchmarks from a table beside it. If a value is a list, each run takes its next
# element. The program records the names that each run requested.
FAKE_PROGRAM = """#!/usr/bin/python3
import json, pathlib, re, sys
pattern = next(option.split("=", 1)[1] for option in sys.argv if option.startswith("--benchmark_filter="))
folder = pathlib.Path(__file__).parent
ran = json.loads((folder / "ran.json").read_text())
rows = {name: {key: value[sum(name in names for names in ran) % len(value)] if isinstance(value, list) else value
               for key, value in row.items()}
        for name, row in json.loads((folder / "rows.json").read_text()).items() if re.search(pattern, name)}
(folder / "ran.json").write_text(json.dumps([*ran, list(rows)]))
print(json.dumps({"context": {"date": "2026-01-02T03:04:05", "load_avg": [0.5], "version of mimalloc": "9.9",
                              "left out": "jemalloc is not installed"},
                  "benchmarks": [{"run_name": name, **row} for name, row in rows.items()]}))
"""

# The same benchmarks also run at smaller sizes; these would take minutes with all checks.
LARGE = r"(containers/.*/(1024|4096|16384|65536)|replay/unet|locality/2097152|large_pair/50000|tree/200000|numpy/.*/(16MB|64MB|60|2000|100000)$|any_lifetime/1000000|(steps|later)/transformer)"
# How names of benchmarks begin that are of a peer which may not be installed.
OF_PEERS = ("mpi/", "numpy/", "programs/", "mimalloc/", "jemalloc/", "tcmalloc/", "boost_pool/", "foonathan_", "llvm_bump/",
            "protobuf_arena/", "thrust", "policy/", "nbody/")


def expect(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def run_compare(folder, targets, rows, *options, others=()):
    """Runs bench/compare.py with these main rows and others, in a copy of bench/, with a program that reports these benchmarks."""
    bench, made_up = folder / "bench", folder / "build"
    (made_up / "bench").mkdir(parents=True)
    bench.mkdir()
    for file in ("compare.py", "document.py", "environment.py", "footprint.py"):
        (bench / file).write_text((root / "bench" / file).read_text())
        (bench / file).chmod(0o755)
    (bench / "main_rows.json").write_text(json.dumps({"made_up": {"title": "Made up", "about": "Made up.", "targets": targets}}))
    (bench / "targets.json").write_text(json.dumps({"made_up": {"targets": list(others)}}))
    (made_up / "bench/rows.json").write_text(json.dumps(rows))
    (made_up / "bench/ran.json").write_text("[]")
    (made_up / "bench/tidemark_bench").write_text(FAKE_PROGRAM)
    (made_up / "bench/tidemark_bench").chmod(0o755)
    (folder / "docs").mkdir()
    done = subprocess.run([bench / "compare.py", made_up, *options], capture_output=True, text=True)
    results = made_up / "results.json"
    return done, json.loads(results.read_text()) if results.exists() else None


def names_of_benchmarks(program):
    listed = subprocess.run([program, "--benchmark_list_tests"], capture_output=True, text=True, check=True,
                            env=environment.with_peers()).stdout.splitlines()
    return {compare.plain_name(name) for name in listed}


def every_benchmark_runs():
    ran, names, missing = set(), set(), ""
    whole_programs = build / "bench" / compare.PROGRAMS["programs"]  # run by programs_check.py
    others = [build / "bench" / name for topic, name in compare.PROGRAMS.items() if topic != "programs"]
    for program in (build / "bench/tidemark_bench", *others):
        if not program.exists():
            missing += f"; {program.name}"
            continue
        done = subprocess.run([program, "--benchmark_min_time=0", "--benchmark_repetitions=1", "--benchmark_format=json",
                               f"--benchmark_filter=-{LARGE}"], capture_output=True, text=True,
                              env=environment.with_peers(TIDEMARK_BENCH_PLAN_SECONDS="0.01"))
        expect(done.returncode == 0, f"exit status {done.returncode}: {done.stderr}")
        report = json.loads(done.stdout)
        for row in report["benchmarks"]:
            expect(not row.get("error_occurred"), f"{row['name']}: {row.get('error_message')}")
            expect(row["iterations"] > 0, f"{row['name']} ran no turn")
        ran |= {compare.plain_name(row["run_name"]) for row in report["benchmarks"]}
        names |= names_of_benchmarks(program)
        missing += report["context"].get("left out", "")
    not_run = {name for name in names - ran if not re.search(LARGE, name)}
    expect(len(ran) > 500 and not not_run, f"{len(ran)} benchmarks ran, and not {sorted(not_run)}")
    print(f"{len(ran)} of {len(names)} benchmarks ran; left out: {missing or 'nothing'}")
    if whole_programs.exists():
        names |= names_of_benchmarks(whole_programs)
    else:
        missing += f"; {whole_programs.name}"
    subjects = subprocess.run([build / "bench/trace_footprint", "--list"], capture_output=True, text=True, check=True,
                              env=environment.with_peers()).stdout.split()
    names |= {f"{subject}/footprint/{trace}" for subject in subjects for trace in compare.RECORDED}
    names |= {f"instructions/{case}" for case in re.findall(r'"(\w+)"', (root / "bench/instructions").read_text())}
    may_be_missing = OF_PEERS if missing else ()
    options = [type("options", (), {"topics": [], "filter": "", "trace": [], "all": every}) for every in (False, True)]
    for rows in (rows for each in options for rows in compare.rows_wanted(each).values()):
        for some in compare.compared_together(rows):
            expect(len({"/threads:" in name for name in some}) == 1, f"one process runs with and without threads: {sorted(some)}")
        for name in (name for row in rows for side in compare.names_of(row) for name in side):
            expect(name in names or name.startswith(may_be_missing),
                   f"a row names '{name}', and there is no such benchmark")


def hard_plans_are_counted_by_percentile():
    def counted(order):
        done = subprocess.run([build / "bench/tidemark_bench", "--benchmark_filter=/hard", "--benchmark_format=json"], check=True,
                              capture_output=True, text=True,
                              env=environment.with_peers(TIDEMARK_BENCH_PLAN_SECONDS="0.02", TIDEMARK_BENCH_ORDER=order))
        return {compare.plain_name(row["run_name"]): row for row in json.loads(done.stdout)["benchmarks"]}

    for order in "0", "1":
        of = counted(order)
        ours, quick = of["planner/hard"], of["make_plan/hard"]
        expect(ours["steps"] >= 50 and quick["steps"] == ours["steps"], f"{ours['steps']} steps")
        expect(0 <= ours["p50"] <= ours["p90"] <= ours["max"], f"{ours}")
        expect(ours["max"] == 0.02 or ours["unsolved"] == 0, f"{ours}")
        families = [share for name, share in ours.items() if name.startswith("unsolved_")]
        expect(len(families) == 4 and abs(sum(families) / 4 - ours["unsolved"]) < 1e-9, f"{ours}")
        expect(ours["unsolved"] <= quick["unsolved"] and 1 <= ours["ratio"] < quick["ratio"], f"{ours}, {quick}")


def long_benchmarks_run_in_few_repetitions():
    targets = [{"name": "hard", "ours": "planner/hard", "metric": "p50", "at_most": None},
               {"name": "easy", "ours": "a", "metric": "time", "at_most": None},
               {"name": "seconds", "ours": "malloc/handoff_memory", "metric": "time", "at_most": None}]
    rows = {"planner/hard": {"p50": [1, 3, 100], "cpu_time": 1}, "a": {"cpu_time": 1}, "malloc/handoff_memory": {"cpu_time": 1}}
    done, report = run_compare(folder, targets, rows)
    expect(report and [each["pairs"] for each in report["results"]] == [2, 9, 6], f"{report}: {done.stderr}")


def rows_are_judged_by_their_targets():
    targets = [{"name": "twice as fast", "ours": "a", "peer": "b", "metric": "time", "ratio": 2.0},
               {"name": "thrice as fast", "ours": "a", "peer": "b", "metric": "time", "ratio": 3.0},
               {"name": "adds enough", "ours": "b", "peer": "a", "metric": "time", "adds_at_most": 5},
               {"name": "adds too much", "ours": "b", "peer": "a", "metric": "time", "adds_at_most": 4},
               {"name": "few ns", "ours": "a", "peer": "b", "metric": "time", "at_most": 5},
               {"name": "too many ns", "ours": "b", "peer": "a", "metric": "time", "at_most": 9},
               {"name": "counted", "ours": "a", "metric": "calls", "at_most": 0},
               {"name": "no target", "ours": "a", "peer": "b", "metric": "time", "ratio": None},
               {"name": "best", "ours": "a", "peer": ["noisy", "b", "gone"], "metric": "time", "ratio": 2.0},
               {"name": "sizes", "ours": "ours/{}", "peer": "peer/{}", "of": [1, 2], "metric": "time", "ratio": 3.9},
               {"name": "noisy", "ours": "a", "peer": "noisy", "metric": "time", "ratio": 2.0},
               {"name": "not there", "ours": "a", "peer": "gone", "metric": "time", "ratio": 1.0},
               {"name": "worst", "ours": "ours/{}", "peer": ["peer/{}", "none/{}"], "of": [1, 2], "metric": "time", "worst": True,
                "ratio": 3.0},
               {"name": "most added", "ours": "{}", "peer": "{}", "of": [["a", "ours/1"], ["peer/2", "a"]], "metric": "time",
                "worst": True, "adds_at_most": 11}]
    rows = {"a": {"cpu_time": 5.0, "calls": 0}, "b": {"cpu_time": 900.0, "items_per_second": 1e8},
            "ours/1": {"cpu_time": 2.0}, "peer/1": {"cpu_time": 4.0}, "noisy": {"cpu_time": [9.0, 11.5]},
            "ours/2/iterations:3": {"cpu_time": 2.0}, "peer/2": {"cpu_time": 16.0}}
    done, report = run_compare(folder, targets, rows, "--repetitions=4")
    expect(done.returncode == 0, f"exit status {done.returncode}: {done.stderr}")
    verdicts = {row["name"]: row["verdict"] for row in report["results"]}
    expect(verdicts == {"twice as fast": "met", "thrice as fast": "not met", "adds enough": "met", "adds too much": "not met",
                        "few ns": "met", "too many ns": "not met", "counted": "met", "no target": None, "best": "met", "sizes": "met",
                        "noisy": "undecided", "worst": "not met", "most added": "met"}, verdicts)
    first, adds, best, sizes, noisy, worst, most = (report["results"][place] for place in (0, 2, 8, 9, 10, 11, 12))
    expect((first["ours_ns"], first["peer_ns"], first["ratio"], first["target"]) == (5.0, 10.0, 2.0, "2 x"), first)
    expect((first["measured"], first["interval"], first["pairs"]) == (2.0, [2.0, 2.0], 4), first)
    expect((adds["measured"], adds["interval"], adds["ratio"]) == (5.0, [5.0, 5.0], 0.5), adds)
    expect((best["best_peer"], best["ratio"]) == ("b", 2.0), f"the best of several peers is not compared: {best}")
    expect((sizes["ours_ns"], sizes["peer_ns"], sizes["ratio"]) == (2.0, 8.0, 4.0), f"no geometric mean: {sizes}")
    expect((noisy["measured"], noisy["interval"]) == (2.05, [1.8, 2.3]), noisy)
    expect((worst["part"], worst["measured"], worst["best_peer"]) == ("1", 2.0, "peer"), worst)
    expect((most["part"], most["measured"]) == ("peer/2", 11.0), most)
    expect(0 <= report["machine"]["minutes"] < 1, report["machine"])
    expect(report["machine"]["date"] == "2026-01-02" and report["versions"]["mimalloc"] == "9.9", "machine or versions")
    expect("left out: not there: gone" in done.stdout, done.stdout)
    expect("left out: jemalloc is not installed" in done.stdout, done.stdout)
    expect("7 of 12 targets are met, 1 are undecided, 4 are not met" in done.stdout, done.stdout)
    expect("1.80–2.30" in done.stdout, done.stdout)
    for row in report["results"]:
        expect(row["name"] in done.stdout, f"the table lacks {row['name']}")


def computes_the_confidence_interval_of_the_median():
    for values, interval in (([4.0], None), ([3.0, 1.0], [1.0, 3.0]), ([2.0, 1.0, 9.0], [1.0, 9.0]), ([4.0] * 9, [4.0, 4.0]),
                             ([1.0] * 8 + [1000.0], [1.0, 1.0]),  # one outlier of nine does not move it
                             ([3.0, 9.0, 1.0, 4.0, 5.0, 6.0, 7.0, 8.0, 2.0], [2.0, 8.0])):
        found = compare.interval_of_median(values)
        expect(found == interval, f"{values}: {found}")
    # The median of n values lies between the order statistics n / 2 -+ 0.98 sqrt(n) in 95 of 100 cases.
    low, high = compare.interval_of_median(list(range(1001)))
    expect(abs(low - 469) < 5 and abs(high - 531) < 5, f"{low} to {high}")


def a_target_is_met_only_by_the_whole_interval():
    for interval, limits, verdict in (
            ([2.0, 2.1], {"least": 2.0}, "met"), ([1.9, 2.0], {"least": 2.0}, "undecided"), ([1.8, 1.9], {"least": 2.0}, "not met"),
            ([3.9, 4.0], {"most": 4.0}, "met"), ([4.0, 4.1], {"most": 4.0}, "undecided"), ([4.1, 4.2], {"most": 4.0}, "not met"),
            (None, {"least": 2.0}, "undecided")):
        found = compare.verdict(interval, **limits)
        expect(found == verdict, f"{interval}, {limits}: {found}")


def pairs_each_repetition_with_one_of_the_peer():
    """If the load doubles both times of each second repetition, the ratio has no spread, although both times
    do."""
    targets = [{"name": "one", "ours": "a", "peer": "b", "metric": "time", "ratio": 2.0},
               {"name": "sizes", "ours": "a/{}", "peer": "b/{}", "of": [1, 2], "metric": "time", "ratio": 2.0},
               {"name": "other of ours", "ours": "c", "peer": "b", "metric": "time", "ratio": None},
               {"name": "apart", "ours": "d", "peer": "e", "metric": "time", "ratio": None}]
    load = [1.0, 2.0]
    rows = {name: {"cpu_time": [time * factor for factor in load]} for name, time in
            (("a", 5.0), ("b", 10.0), ("a/1", 1.0), ("b/1", 2.0), ("a/2", 4.0), ("b/2", 8.0), ("c", 3.0), ("d", 1.0), ("e", 1.0))}
    done, report = run_compare(folder, targets, rows, "--repetitions=6")
    expect(done.returncode == 0, done.stderr)
    for row in report["results"][:2]:
        expect((row["interval"], row["pairs"], row["verdict"]) == ([2.0, 2.0], 6, "met"), row)
    ran = json.loads((folder / "build/bench/ran.json").read_text())
    expect(sorted(map(sorted, ran[:3])) == [["a", "b", "c"], ["a/1", "a/2", "b/1", "b/2"], ["d", "e"]],
           f"what is compared does not run in one process: {ran[:3]}")
    expect(ran == ran[:3] * 6, f"a repetition is not one run of each: {ran}")


def a_row_beside_mimalloc_stands_for_both_versions():
    rows = {"a": {"cpu_time": 1.0}, "mimalloc/pair": {"cpu_time": 2.0}, "mimalloc3/pair": {"cpu_time": 3.0}}
    others = [{"name": "pair, beside mimalloc", "ours": "a", "peer": "mimalloc/pair", "metric": "time", "ratio": 2.5}]
    _, report = run_compare(folder, [], rows, "--all", others=others)
    found = {row["name"]: (row["ratio"], row["verdict"]) for row in report["results"]}
    expect(report["machine"]["repetitions"] == 6, report["machine"])
    expect(found == {"pair, beside mimalloc": (2.0, "not met"), "pair, beside mimalloc 3": (3.0, "met")}, found)


def instructions_are_counted_by_a_program_of_their_own():
    targets = [{"name": name, "ours": f"instructions/{name}", "metric": "instructions", "at_most": 5} for name in ("loop", "gone")]
    counter = folder / "bench/instructions"
    run_compare(folder, [], {})
    counter.write_text("#!/bin/sh\necho 'over an empty loop   instructions   limit'\necho 'loop   5.00   6'\necho \"no case 'gone'\" >&2; exit 1\n")
    counter.chmod(0o755)
    (folder / "bench/main_rows.json").write_text(json.dumps({"made_up": {"title": "Made up", "about": "Made up.", "targets": targets}}))
    subprocess.run([folder / "bench/compare.py", folder / "build"], capture_output=True, text=True)
    report = json.loads((folder / "build/results.json").read_text())
    expect([(row["name"], row["ours"], row["verdict"]) for row in report["results"]] == [("loop", 5.0, "met")], report)
    expect(report["left_out"] == ["left out: gone: no case 'gone'"], report)


def one_repetition_is_undecided():
    row = {"name": "made up", "ours": "a", "peer": "b", "metric": "time", "ratio": 2.0}
    done, report = run_compare(folder, [row], {"a": {"cpu_time": 1.0}, "b": {"cpu_time": 9.0}}, "--repetitions=1", "--strict")
    expect(done.returncode == 0, f"exit status {done.returncode}: {done.stderr}")
    found = report["results"][0]
    expect((found["ratio"], found["interval"], found["verdict"]) == (9.0, None, "undecided"), found)
    expect("0 of 1 targets are met, 1 are undecided, 0 are not met" in done.stdout, done.stdout)


def strict_makes_an_unmet_target_an_error():
    row = {"name": "made up", "ours": "a", "peer": "b", "metric": "time"}
    rows = {"a": {"cpu_time": 10.0}, "b": {"cpu_time": [20.0, 22.0]}}
    for number, (ratio, option, status) in enumerate([(2.0, "--strict", 0), (2.1, "--strict", 0), (2.3, "--strict", 1), (2.3, None, 0)]):
        done, _ = run_compare(folder / str(number), [row | {"ratio": ratio}], rows, *filter(None, [option]))
        expect(done.returncode == status, f"{ratio} {option}: exit status {done.returncode}: {done.stderr}")


def filter_accepts_topics_and_names():
    targets = [{"name": name, "ours": "a", "peer": "b", "metric": "time", "ratio": 1.0} for name in ("one", "other")]
    medians = {"a": {"cpu_time": 10.0}, "b": {"cpu_time": 20.0}}
    for number, (pattern, names) in enumerate([("^other", ["other"]), ("made_up", ["one", "other"])]):
        _, report = run_compare(folder / str(number), targets, medians, "--filter", pattern)
        expect([row["name"] for row in report["results"]] == names, report)
    _, report = run_compare(folder / "topic", targets, medians, "made_up")
    expect([row["name"] for row in report["results"]] == ["one", "other"], report)
    other = [{"name": "of all", "ours": "b", "peer": "a", "metric": "time", "ratio": 0.1}]
    for options, names in (((), ["one", "other"]), (("--all",), ["one", "other", "of all"]), (("made_up",), ["one", "other", "of all"])):
        _, report = run_compare(folder / f"with {options}", targets, medians, *options, others=other)
        expect([row["name"] for row in report["results"]] == names, f"{options}: {report}")
    done, report = run_compare(folder / "none", targets, medians, "--filter", "nothing")
    expect(done.returncode == 1 and report is None, "a filter that matches nothing is no error")
    expect(done.stderr == "no topic and no row matches 'nothing'\n", done.stderr)


def rejects_wrong_options():
    for number, (options, sentence) in enumerate([
            (("--trace", "gone.csv"), "--trace gone.csv: there is no such file"),
            (("--repetitions", "0"), "--repetitions is 1 or more, --seconds and --plan-seconds 0 or more"),
            (("--plan-seconds", "nan"), "--repetitions is 1 or more, --seconds and --plan-seconds 0 or more"),
            (("armies",), "there is no topic 'armies'; there are "),
            (("--filter", "("), "--filter '(' is no regular expression: "),
            (("--document", "--filter", "arena"), "--document takes no TOPIC, --filter or --trace")]):
        done, report = run_compare(folder / str(number), [], {}, *options)
        expect(done.returncode == 2 and report is None, f"{options}: exit status {done.returncode}")
        expect(done.stderr.startswith(sentence) and done.stderr.count("\n") == 1, done.stderr)


def a_benchmark_that_fails_leaves_its_rows_out_with_the_reason():
    targets = [{"name": name, "ours": "a", "peer": peer, "metric": "time", "ratio": 1.0}
               for name, peer in (("sound", "b"), ("failing", "c"))]
    medians = {"a": {"cpu_time": 10.0}, "b": {"cpu_time": 20.0},
               "c": {"cpu_time": 0.0, "error_occurred": True, "error_message": "out of memory"}}
    for option, status in (("--strict", 1), ("--seconds=0", 0)):
        done, report = run_compare(folder / option, targets, medians, option)
        expect(done.returncode == status, f"{option}: exit status {done.returncode}: {done.stderr}")
        expect([row["name"] for row in report["results"]] == ["sound"], report)
        expect(report["left_out"] == ["left out: failing: out of memory"], report)


def a_peer_that_cannot_be_loaded_is_left_out_with_a_line():
    too_little = os.environ | {"GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=0"}  # for jemalloc
    done = subprocess.run([build / "bench/tidemark_bench", "--benchmark_list_tests"], capture_output=True, text=True,
                          env=too_little)
    expect(done.returncode == 0, f"exit status {done.returncode}: {done.stderr}")
    expect(re.search("^left out: jemalloc cannot be used: .+$", done.stderr, re.MULTILINE), done.stderr)
    expect("pool/pair/64" in done.stdout and "jemalloc/" not in done.stdout, "the list is not that without jemalloc")


def the_page_is_written_from_the_results():
    """bench/document.py makes docs/benchmarks.md of the results beside its charts: no number is typed by
    hand."""
    done = subprocess.run([root / "bench/document.py", root / "docs/benchmarks/results.json", folder],
                          capture_output=True, text=True)
    expect(done.returncode == 0, done.stderr)
    page = (folder / "benchmarks.md").read_text()
    expect(page == (root / "docs/benchmarks.md").read_text(),
           "docs/benchmarks.md is not what bench/document.py writes from docs/benchmarks/results.json")
    reasons = (folder / "benchmarks/reasons.md").read_text()
    expect(reasons == (root / "docs/benchmarks/reasons.md").read_text(),
           "docs/benchmarks/reasons.md is not what bench/document.py writes from docs/benchmarks/results.json")
    charts = re.findall(r"\]\(benchmarks/([a-z_]+\.svg)\)", page)
    topics = json.loads((root / "bench/main_rows.json").read_text())
    expect(charts == [f"{topic}.svg" for topic, entry in topics.items() if entry["targets"]], f"the page shows {charts}")
    for entry in topics.values():
        expect(f"\n## {entry['title']}\n" in page, f"the page has no section {entry['title']}")
        for target in entry.get("retired", []):
            expect(f"- {entry['title']}: {target}\n" in reasons, f"the reasons lack the retired target {target}")
    for chart in charts:
        xml.etree.ElementTree.parse(folder / "benchmarks" / chart)
        expect((root / "docs/benchmarks" / chart).is_file(), f"docs/benchmarks/{chart} is missing")
    results = json.loads((root / "docs/benchmarks/results.json").read_text())["results"]
    claim = f"[{document.share_of_time(results)} times the time](docs/benchmarks.md#programs)"
    expect(claim in (root / "README.md").read_text(), f"the README lacks {claim}")
    measured = {(row["topic"], row["name"]) for row in results}
    for topic, entry in topics.items():
        for row in entry["targets"]:
            expect((topic, row["name"]) in measured, f"the page lacks {topic}: {row['name']}")
            expect(not {"ratio", "at_most", "adds_at_most"}.isdisjoint(row), f"{topic}: {row['name']} has no target")
            expect(row["rule"] in ("design", "README", "goal", "lost"), f"{topic}: {row['name']} is a main row by no rule")
            expect(("worst" in row["name"]) == row.get("worst", False) or row["metric"] == "instructions",
                   f"{topic}: {row['name']} does not say that the worst counts")


def made_up_report(*results):
    result = {"topic": "plan", "metric": "time", "ours_ns": 5.0, "peer_ns": 10.0, "ratio": 2.0, "measured": 2.0, "pairs": 9,
              "target": "3 x", "interval": [1.9, 2.1], "verdict": "not met"}
    return {"machine": {"repetitions": 9, "seconds": 0.1, "minutes": 7.5, "processor": "made up", "cores": 2, "system": "Linux", "kernel": "6",
                        "date": "2026-01-02", "load": [0.5]},
            "versions": {"tidemark": "0", "mimalloc": "2.0.9", "other": "1"}, "left_out": ["left out: gone: no peer"],
            "results": [result | more for more in results]}


def the_page_shows_intervals_peers_and_reasons():
    topic, row = next((topic, row) for topic, entry in json.loads((root / "bench/main_rows.json").read_text()).items()
                      for row in entry["targets"] if "why" in row)
    other_topic, other = next((topic, row) for topic, entry in json.loads((root / "bench/main_rows.json").read_text()).items()
                              for row in entry["targets"] if "why" not in row)
    document.write(made_up_report({"topic": topic, "name": row["name"]}, {"topic": other_topic, "name": other["name"]},
                                  {"name": "new", "interval": [1.9, 3.1], "verdict": "undecided", "best_peer": "tcmalloc"},
                                  {"name": "worst", "part": "of twelve", "best_peer": "malloc", "verdict": "met"},
                                  {"name": "limited", "target": "<= 3", "verdict": "met"}), folder)
    reasons = (folder / "benchmarks/reasons.md").read_text()
    for part in (f"- **{other_topic}: {other['name']}**: The cause is not known.",
                 f"- **{topic}: {row['name']}**: {row['why']}"):
        expect(part in reasons, f"the reasons lack {part}:\n{reasons}")
    page = (folder / "benchmarks.md").read_text()
    for part in ("2 of 5 targets are met, 1 are undecided, 2 are not met ([the reasons](benchmarks/reasons.md)).", "Each of the 5 main rows",
                 "this run took 7.5 minutes", "| plan | worst (of twelve, malloc) |",
                 "| plan | new (tcmalloc) | 5.00 | 10.00 | 2.00 x | 1.90–3.10 | 3 x | undecided |", "| <= 3 | met |",
                 "mimalloc 2.0.9 (2022), other 1", "- gone: no peer"):
        expect(part in page, f"the page lacks {part}:\n{page}")


def writes_all_rows_as_a_csv_table():
    (folder / "benchmarks").mkdir()
    document.write_all_rows(made_up_report({"name": "one, two"}, {"name": "alone", "interval": None, "target": None}), folder)
    head, first, second = (folder / "benchmarks/all_rows.csv").read_text().splitlines()
    expect(head == (root / "docs/benchmarks/all_rows.csv").read_text().split("\n")[0], head)
    expect(first == 'plan,"one, two",time,5.0,10.0,2.0,1.9,2.1,3 x,not met,2026-01-02,0', first)
    expect(second == "plan,alone,time,5.0,10.0,2.0,,,,not met,2026-01-02,0", second)


with tempfile.TemporaryDirectory() as scratch:
    folder = pathlib.Path(scratch)
    globals()[sys.argv[2]]()
