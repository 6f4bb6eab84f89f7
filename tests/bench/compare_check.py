#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks of ./run bench: every benchmark runs, targets.json names none that is not there, and rows are judged as said.

usage: compare_check.py BUILD-DIRECTORY CASE

What is judged is told by a made-up program, so that no verdict here depends on how fast a machine is.
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
import environment  # noqa: E402

# Reports the medians of a table that stands beside it, of the benchmarks that are asked for.
FAKE_PROGRAM = """#!/usr/bin/python3
import json, pathlib, re, sys
pattern = next(option.split("=", 1)[1] for option in sys.argv if option.startswith("--benchmark_filter="))
rows = json.loads((pathlib.Path(__file__).parent / "medians.json").read_text())
print(json.dumps({"context": {"date": "2026-01-02T03:04:05", "load_avg": [0.5], "version of mimalloc": "9.9",
                              "left out": "jemalloc is not installed"},
                  "benchmarks": [{"run_name": name, "aggregate_name": "median", **row} for name, row in rows.items()
                                 if re.search(pattern, name)]}))
"""

# The same benchmarks at smaller sizes run as well; these take minutes where everything is checked.
LARGE = r"(containers/.*/(4096|16384|65536)|locality/2097152)"
# How names of benchmarks begin that are of a peer which may not be installed.
OF_PEERS = ("mimalloc/", "jemalloc/", "tcmalloc/", "boost_pool/", "foonathan_", "llvm_bump/", "protobuf_arena/", "thrust",
            "policy/")


def expect(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def run_compare(folder, targets, medians, *options):
    """bench/compare.py with these targets, in a copy of bench/, on a program that reports these medians."""
    bench, made_up = folder / "bench", folder / "build"
    (made_up / "bench").mkdir(parents=True)
    bench.mkdir()
    for file in ("compare.py", "document.py", "environment.py", "footprint.py"):
        (bench / file).write_text((root / "bench" / file).read_text())
        (bench / file).chmod(0o755)
    (bench / "targets.json").write_text(json.dumps({"made_up": {"about": "Made up.", "targets": targets}}))
    (made_up / "bench/medians.json").write_text(json.dumps(medians))
    (made_up / "bench/tidemark_bench").write_text(FAKE_PROGRAM)
    (made_up / "bench/tidemark_bench").chmod(0o755)
    (folder / "docs").mkdir()
    done = subprocess.run([bench / "compare.py", made_up, *options], capture_output=True, text=True)
    results = made_up / "results.json"
    return done, json.loads(results.read_text()) if results.exists() else None


def every_benchmark_runs(_):
    program = [build / "bench/tidemark_bench"]
    done = subprocess.run([*program, "--benchmark_min_time=0", "--benchmark_repetitions=1", "--benchmark_format=json",
                           f"--benchmark_filter=-{LARGE}"], capture_output=True, text=True, env=environment.with_peers())
    expect(done.returncode == 0, f"exit status {done.returncode}: {done.stderr}")
    report = json.loads(done.stdout)
    for row in report["benchmarks"]:
        expect(not row.get("error_occurred"), f"{row['name']}: {row.get('error_message')}")
        expect(row["iterations"] > 0, f"{row['name']} ran no turn")
    ran = {compare.plain_name(row["run_name"]) for row in report["benchmarks"]}
    listed = subprocess.run([*program, "--benchmark_list_tests"], capture_output=True, text=True, check=True,
                            env=environment.with_peers()).stdout.splitlines()
    names = {compare.plain_name(name) for name in listed}
    not_run = {name for name in names - ran if not re.search(LARGE, name)}
    expect(len(ran) > 500 and not not_run, f"{len(ran)} benchmarks ran, and not {sorted(not_run)}")
    missing = report["context"]["left out"]
    print(f"{len(ran)} of {len(names)} benchmarks ran; left out: {missing or 'nothing'}")
    subjects = subprocess.run([build / "bench/trace_footprint", "--list"], capture_output=True, text=True, check=True,
                              env=environment.with_peers()).stdout.split()
    names |= {f"{subject}/footprint/{trace}" for subject in subjects for trace in compare.RECORDED}
    may_be_missing = OF_PEERS if missing else ()
    options = type("options", (), {"filter": "", "trace": []})
    for rows in compare.rows_wanted(options).values():
        for name in (name for row in rows for side in compare.names_of(row) for name in side):
            expect(name in names or name.startswith(may_be_missing),
                   f"targets.json names '{name}', which there is no benchmark of")


def rows_are_judged_by_their_targets(folder):
    targets = [{"name": "twice as fast", "ours": "a", "peer": "b", "metric": "time", "ratio": 2.0},
               {"name": "thrice as fast", "ours": "a", "peer": "b", "metric": "time", "ratio": 3.0},
               {"name": "adds enough", "ours": "b", "peer": "a", "metric": "time", "adds_at_most": 5},
               {"name": "adds too much", "ours": "b", "peer": "a", "metric": "time", "adds_at_most": 4},
               {"name": "few ns", "ours": "a", "peer": "b", "metric": "time", "at_most": 5},
               {"name": "too many ns", "ours": "b", "peer": "a", "metric": "time", "at_most": 9},
               {"name": "counted", "ours": "a", "metric": "calls", "at_most": 0},
               {"name": "no target", "ours": "a", "peer": "b", "metric": "time", "ratio": None},
               {"name": "sizes", "ours": "ours/{}", "peer": "peer/{}", "of": [1, 2], "metric": "time", "ratio": 3.9},
               {"name": "not there", "ours": "a", "peer": "gone", "metric": "time", "ratio": 1.0}]
    medians = {"a": {"cpu_time": 5.0, "calls": 0}, "b": {"cpu_time": 900.0, "items_per_second": 1e8},
               "ours/1": {"cpu_time": 2.0}, "peer/1": {"cpu_time": 4.0},
               "ours/2/repeats:3": {"cpu_time": 2.0}, "peer/2": {"cpu_time": 16.0}}
    done, report = run_compare(folder, targets, medians)
    expect(done.returncode == 0, f"exit status {done.returncode}: {done.stderr}")
    met = {row["name"]: row["met"] for row in report["results"]}
    expect(met == {"twice as fast": True, "thrice as fast": False, "adds enough": True, "adds too much": False,
                   "few ns": True, "too many ns": False, "counted": True, "no target": None, "sizes": True}, met)
    first, sizes = report["results"][0], report["results"][8]
    expect((first["ours_ns"], first["peer_ns"], first["ratio"], first["target"]) == (5.0, 10.0, 2.0, "2 x"), first)
    expect((sizes["ours_ns"], sizes["peer_ns"], sizes["ratio"]) == (2.0, 8.0, 4.0), f"no geometric mean: {sizes}")
    expect(report["machine"]["date"] == "2026-01-02" and report["versions"]["mimalloc"] == "9.9", "machine or versions")
    expect("left out: not there: gone" in done.stdout, done.stdout)
    expect("left out: jemalloc is not installed" in done.stdout, done.stdout)
    expect("5 of 8 targets met" in done.stdout, done.stdout)
    for row in report["results"]:
        expect(row["name"] in done.stdout, f"the table lacks {row['name']}")


def strict_makes_an_unmet_target_an_error(folder):
    row = {"name": "made up", "ours": "a", "peer": "b", "metric": "time"}
    medians = {"a": {"cpu_time": 10.0}, "b": {"cpu_time": 20.0}}
    for number, (ratio, option, status) in enumerate([(2.0, "--strict", 0), (2.1, "--strict", 1), (2.1, None, 0)]):
        done, _ = run_compare(folder / str(number), [row | {"ratio": ratio}], medians, *filter(None, [option]))
        expect(done.returncode == status, f"{ratio} {option}: exit status {done.returncode}: {done.stderr}")


def a_filter_takes_topics_and_names(folder):
    targets = [{"name": name, "ours": "a", "peer": "b", "metric": "time", "ratio": 1.0} for name in ("one", "other")]
    medians = {"a": {"cpu_time": 10.0}, "b": {"cpu_time": 20.0}}
    for number, (pattern, names) in enumerate([("^other", ["other"]), ("made_up", ["one", "other"])]):
        _, report = run_compare(folder / str(number), targets, medians, "--filter", pattern)
        expect([row["name"] for row in report["results"]] == names, report)
    done, report = run_compare(folder / "none", targets, medians, "--filter", "nothing")
    expect(done.returncode == 1 and report is None, "a filter that matches nothing is no error")
    expect(done.stderr == "no topic and no row of bench/targets.json matches 'nothing'\n", done.stderr)


def rejects_wrong_options(folder):
    for number, (options, sentence) in enumerate([
            (("--trace", "gone.csv"), "--trace gone.csv: there is no such file"),
            (("--repetitions", "0"), "--repetitions is 1 or more, --seconds 0 or more"),
            (("--filter", "("), "--filter '(' is no regular expression: "),
            (("--document", "--filter", "arena"), "--document is of all rows, ")]):
        done, report = run_compare(folder / str(number), [], {}, *options)
        expect(done.returncode == 2 and report is None, f"{options}: exit status {done.returncode}")
        expect(done.stderr.startswith(sentence) and done.stderr.count("\n") == 1, done.stderr)


def a_benchmark_that_fails_leaves_its_rows_out_with_the_reason(folder):
    targets = [{"name": name, "ours": "a", "peer": peer, "metric": "time", "ratio": 1.0}
               for name, peer in (("sound", "b"), ("failing", "c"))]
    medians = {"a": {"cpu_time": 10.0}, "b": {"cpu_time": 20.0},
               "c": {"cpu_time": 0.0, "error_occurred": True, "error_message": "out of memory"}}
    for option, status in (("--strict", 1), ("--seconds=0", 0)):
        done, report = run_compare(folder / option, targets, medians, option)
        expect(done.returncode == status, f"{option}: exit status {done.returncode}: {done.stderr}")
        expect([row["name"] for row in report["results"]] == ["sound"], report)
        expect(report["left_out"] == ["left out: failing: out of memory"], report)


def a_peer_that_cannot_be_loaded_is_left_out_with_a_line(_):
    too_little = os.environ | {"GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=0"}  # for jemalloc
    done = subprocess.run([build / "bench/tidemark_bench", "--benchmark_list_tests"], capture_output=True, text=True,
                          env=too_little)
    expect(done.returncode == 0, f"exit status {done.returncode}: {done.stderr}")
    expect(re.search("^left out: jemalloc cannot be used: .+$", done.stderr, re.MULTILINE), done.stderr)
    expect("pool/pair/64" in done.stdout and "jemalloc/" not in done.stdout, "the list is not that without jemalloc")


def the_page_is_written_from_the_results(folder):
    """docs/benchmarks.md is what the results beside its charts make: no number is typed by hand."""
    done = subprocess.run([root / "bench/document.py", root / "docs/benchmarks/results.json", folder],
                          capture_output=True, text=True)
    expect(done.returncode == 0, done.stderr)
    page = (folder / "benchmarks.md").read_text()
    expect(page == (root / "docs/benchmarks.md").read_text(),
           "docs/benchmarks.md is not what bench/document.py writes from docs/benchmarks/results.json")
    charts = re.findall(r"\]\(benchmarks/([a-z_]+\.svg)\)", page)
    expect(len(charts) >= 10, f"the page shows {len(charts)} charts only")
    for chart in charts:
        xml.etree.ElementTree.parse(folder / "benchmarks" / chart)
        expect((root / "docs/benchmarks" / chart).is_file(), f"docs/benchmarks/{chart} is missing")
    topics = json.loads((root / "bench/targets.json").read_text())
    for topic in topics:
        expect(f"\n## {topic.replace('_', ' ').capitalize()}\n" in page, f"the page has no topic {topic}")


CASES = [every_benchmark_runs, rows_are_judged_by_their_targets, strict_makes_an_unmet_target_an_error,
         a_filter_takes_topics_and_names, rejects_wrong_options,
         a_benchmark_that_fails_leaves_its_rows_out_with_the_reason,
         a_peer_that_cannot_be_loaded_is_left_out_with_a_line, the_page_is_written_from_the_results]

case = next(case for case in CASES if case.__name__ == sys.argv[2])
with tempfile.TemporaryDirectory() as scratch:
    case(pathlib.Path(scratch))
