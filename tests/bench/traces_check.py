# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmarks of traces and checks their output: traces_check.py BENCH FOOTPRINT SOURCES CASE.

Each case is one fact. BENCH is tidemark_bench, FOOTPRINT is trace_footprint. The test computes expected
footprints itself, from handwritten traces. It checks no time.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

BENCH, FOOTPRINT, SOURCES, CASE = sys.argv[1:]
sys.path.insert(0, str(pathlib.Path(SOURCES) / "bench"))
sys.dont_write_bytecode = True
import footprint  # noqa: E402
from environment import with_peers  # noqa: E402

RECORDED = ["clang_syntax", "lld_link", "torch_gpt", "torch_mlp"]
STEPPED = ["torch_gpt", "torch_mlp"]  # of these, with steps
OURS = ["pool", "fitted_pool", "synchronized_pool"]
HEADER = "op,id,bytes,thread\n"
PAGE = os.sysconf("SC_PAGESIZE")
TIMEOUT_SECONDS = 120


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}\n  is:        {got!r}\n  should be: {wanted!r}")


def expect_between(what, got, least, most):
    if not least <= got <= most:
        sys.exit(f"{what}\n  is:        {got!r}\n  should be: from {least!r} to {most!r}")


def environment(*paths):
    return with_peers(TIDEMARK_BENCH_TRACES=":".join(map(str, paths)))


def run(program, *arguments, paths=()):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT_SECONDS,
                          env=environment(*paths))
    return done.returncode, done.stdout, done.stderr


def write(text, name="trace.csv"):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def events(rows):
    """Returns a trace of ("a" or "f", id, bytes) on one thread."""
    return HEADER + "".join(f"{op},{block},{size if op == 'a' else 0},0\n" for op, block, size in rows)


def random_events(chance, n, sizes):
    """Returns random allocations and deallocations with a rising number of live blocks."""
    live, rows = [], []
    for i in range(n):
        if live and chance.random() < 0.45:
            rows.append(("f", *live.pop(chance.randrange(len(live)))))
        else:
            live.append((i, sizes(chance)))
            rows.append(("a", *live[-1]))
    return rows


def most_live(rows, size_of=lambda size: size):
    live = most = 0
    for op, _, size in rows:
        live += size_of(size) if op == "a" else -size_of(size)
        most = max(most, live)
    return most


def in_pages(size):
    return -(-size // PAGE) * PAGE


def measured(allocator, rows, **more):
    return footprint.rows(FOOTPRINT, environment(), [allocator], [str(write(events(rows), **more))])[0]


def bench_names(paths=()):
    status, output, errors = run(BENCH, "--benchmark_list_tests", "--benchmark_filter=/trace/", paths=paths)
    expect(f"status of the list, of which is said {errors!r}", status, 0)
    return output.split()


def lines_about(program, errors):
    """Returns stderr without the benchmarks' own lines."""
    return [line for line in errors.splitlines() if line.startswith(f"{program}: ")]


# ---- which traces --------------------------------------------------------------------------------------------------


def every_allocator_plays_every_recorded_trace():
    status, output, errors = run(FOOTPRINT, "--list")
    expect("status and errors", (status, errors), (0, ""))
    allocators = output.split()
    expect("ours", allocators[:3], OURS)
    expect("allocators that are always present", {"malloc", "std_pool", "std_synchronized_pool"} <= set(allocators), True)
    names = bench_names()
    expect("on one thread", sorted(name for name in names if "threads:" not in name),
           sorted([f"{allocator}/trace/{trace}" for trace in RECORDED for allocator in allocators] +
                  [f"planned_arena/trace/{trace}" for trace in STEPPED]))
    on_threads = [name for name in names if "threads:" in name]
    shared = [name for name in allocators if name in
              ("synchronized_pool", "std_synchronized_pool", "malloc", "mimalloc", "mimalloc3", "jemalloc", "tcmalloc")]
    expect("on threads", sorted(on_threads),
           sorted(f"{allocator}/trace/lld_link/threads:own/real_time" for allocator in shared))


def recorded_traces_have_known_statistics():
    known = {trace["name"]: (trace["threads"], trace["operations"], trace["peak_live_bytes"])
             for trace in footprint.traces(FOOTPRINT, environment())}
    expect("traces", known, {"clang_syntax": (1, 200784, 27735157), "lld_link": (5, 29918, 8834786),
                             "torch_gpt": (1, 9834, 79152324), "torch_mlp": (1, 2562, 615848)})


def user_traces_run_as_benchmarks():
    # Each of two threads frees a block of the other.
    path = write(HEADER + "a,0,100,7\na,1,5000,8\nf,0,0,8\nf,1,0,7\na,2,0,7\n", "mine.csv")
    expect("traces", [trace["name"] for trace in footprint.traces(FOOTPRINT, environment(path))], RECORDED + ["mine"])
    names = [name for name in bench_names([path]) if "/trace/mine" in name]
    for name in ("pool/trace/mine", "malloc/trace/mine", "synchronized_pool/trace/mine/threads:own/real_time"):
        expect(f"{name} is there", name in names, True)
    expect("pool on threads is there", "pool/trace/mine/threads:own/real_time" in names, False)
    status, output, errors = run(BENCH, "--benchmark_filter=/trace/mine", "--benchmark_min_time=0.001",
                                 "--benchmark_format=json", paths=[path])
    expect(f"status, with {errors!r}", status, 0)
    ran = json.loads(output)["benchmarks"]
    expect("benchmarks", [row["name"] for row in ran], names)
    for row in ran:
        # Three blocks, each freed, make six operations. One of them is the free of the last block at the end.
        expect(f"{row['name']} ran", "error_message" not in row and row["items_per_second"] > 0, True)
        scale = row["real_time"] if "real_time" in row["name"].split("/") else row["cpu_time"]
        expect_between(f"operations of {row['name']}", row["items_per_second"] * scale / 1e9, 5.99, 6.01)


def numbers_and_reports_traces_of_one_name():
    paths = [write(events([("a", 0, size)]), f"{place}/torch_mlp.csv") for place, size in (("one", 10), ("two", 20))]
    status, output, errors = run(FOOTPRINT, "--traces", paths=paths)
    expect("status", status, 0)
    expect("errors", errors, "".join(f"two traces are named torch_mlp: {path} is called torch_mlp_{i}\n"
                                     for i, path in enumerate(paths, 2)))
    found = {trace["name"]: trace["peak_live_bytes"] for trace in map(json.loads, output.splitlines())}
    expect("bytes", [found[name] for name in ("torch_mlp", "torch_mlp_2", "torch_mlp_3")], [615848, 10, 20])
    names = bench_names(paths)
    for name in ("pool/trace/torch_mlp", "pool/trace/torch_mlp_2", "pool/trace/torch_mlp_3"):
        expect(f"how often {name} is there", names.count(name), 1)


def names_are_valid_for_any_file_name():
    path, name = write(events([("a", 0, 10)]), 'a "b"\\\n(c).csv'), "a ?b???(c)"
    expect("traces", [trace["name"] for trace in footprint.traces(FOOTPRINT, environment("", path, ""))],
           RECORDED + [name])
    expect("the row", footprint.rows(FOOTPRINT, environment(path), ["malloc"], [name])[0]["trace"], name)


# ---- faults --------------------------------------------------------------------------------------------------------


def a_malformed_trace_is_one_sentence_with_file_and_line():
    cases = {"op,id,bytes\n": ":1: the header is 'op,id,bytes', not op,id,bytes,thread",
             HEADER + "a,0,8,0\nf,0,0,0\nf,0,0,0\n": ":4: block 0 is freed twice; first by event 1",
             HEADER + "a,0,x,0\n": ":2: bytes is 'x', not a whole number"}
    for text, reason in cases.items():
        path = write(text, "bad.csv")
        for allocator in ("pool", "fitted_pool"):
            for name, paths in ((path, ()), ("bad", (path,))):
                expect("message of trace_footprint", run(FOOTPRINT, allocator, name, paths=paths),
                       (2, "", f"trace_footprint: {path}{reason}\n"))
        for suffix in ("$", "/threads:own"):
            only = "--benchmark_filter=^synchronized_pool/trace/bad" + suffix
            status, output, errors = run(BENCH, only, paths=[path])
            expect("message of tidemark_bench", (status, lines_about("tidemark_bench", errors)),
                   (2, [f"tidemark_bench: {path}{reason}"]))
        status, _, errors = run(FOOTPRINT, "--traces", paths=[path])
        expect("message for the list", (status, errors), (2, f"trace_footprint: {path}{reason}\n"))
        try:
            footprint.measure(FOOTPRINT, ["pool/footprint/bad"], environment(path))
            sys.exit("footprint.measure takes a malformed trace")
        except RuntimeError as error:
            expect("message of footprint.py", str(error), f"trace_footprint: {path}{reason}")


def other_traces_are_played_after_a_malformed_trace():
    path = write("nothing\n", "bad.csv")
    status, output, _ = run(BENCH, "--benchmark_filter=^pool/trace/torch_mlp$", "--benchmark_min_time=0.001",
                            "--benchmark_format=json", paths=[path])
    expect("status", status, 0)
    expect("rows", [row["name"] for row in json.loads(output)["benchmarks"]], ["pool/trace/torch_mlp"])


def reports_a_file_that_cannot_be_read():
    for path, reason in ((folder / "none.csv", "No such file or directory"), (folder, "Is a directory")):
        expect("message", run(FOOTPRINT, "pool", path), (2, "", f"trace_footprint: {path}: {reason}\n"))


def rejects_an_unknown_allocator_and_lists_the_known_ones():
    names = run(FOOTPRINT, "--list")[1].split()
    expect("message", run(FOOTPRINT, "pol", "torch_mlp"),
           (2, "", f"trace_footprint: there is no allocator 'pol'; there are {' '.join(names)}\n"))


def wrong_options_are_answered_with_the_usage():
    usage = run(FOOTPRINT, "--help")[1]
    expect("its begin", usage.startswith("usage: trace_footprint ALLOCATOR TRACE\n"), True)
    for arguments in ((), ("pool",), ("pool", "torch_mlp", "more"), ("--lists",)):
        expect(f"message for {arguments}", run(FOOTPRINT, *arguments), (2, "", usage))


def rejects_traces_larger_than_memory():
    path = write(events([("a", 0, 2**62)]))
    status, output, errors = run(FOOTPRINT, "pool", path)
    expect("status and output", (status, output), (2, ""))
    expect(f"the begin of {errors!r}", errors.startswith(
        f"trace_footprint: {path}: {2**62} bytes are live at once, more than half of the "), True)
    # Only one byte per page of a block is written, so the allocator must reject the request.
    threaded = write(HEADER + f"a,0,8,0\na,1,{2**62},1\nf,1,0,0\nf,0,0,1\n", "huge.csv")
    status, output, errors = run(BENCH, "--benchmark_filter=^(pool|synchronized_pool)/trace/huge",
                                 "--benchmark_min_time=0.001", "--benchmark_format=json", paths=[threaded])
    expect(f"status, with {errors!r}", status, 0)
    rows = json.loads(output)["benchmarks"]
    expect("rows", [row["name"] for row in rows], ["pool/trace/huge", "synchronized_pool/trace/huge",
                                                   "synchronized_pool/trace/huge/threads:own/real_time"])
    for row in rows:
        expect(f"{row['name']} tells of it", bool(row.get("error_message")), True)


def reports_a_trace_of_too_many_threads():
    path = write(HEADER + "".join(f"a,{i},8,{i}\n" for i in range(1025)), "many.csv")
    status, output, errors = run(BENCH, "--benchmark_filter=^synchronized_pool/trace/many", "--benchmark_format=json",
                                 "--benchmark_min_time=0.001", paths=[path])
    expect(f"status, with {errors!r}", status, 0)
    on_one, on_own = json.loads(output)["benchmarks"]
    expect("on one thread it runs", "error_message" in on_one, False)
    expect("on its own", on_own["error_message"],
           "threaded_replay: the trace has 1025 threads; it starts 1024 at most")


# ---- the runner ----------------------------------------------------------------------------------------------------


def compared(*options):
    """Returns the message with which bench/compare.py rejects these options."""
    done = subprocess.run([pathlib.Path(SOURCES) / "bench/compare.py", pathlib.Path(BENCH).parents[1], *map(str, options)],
                          capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    return done.returncode, done.stdout, done.stderr


def runner_reports_a_malformed_trace_before_any_run():
    good, bad = write(events([("a", 0, 10)]), "good.csv"), write(HEADER + "a,0,8,0\na,0,8,0\n", "bad.csv")
    expect("message", compared("--trace", good, "--trace", bad),
           (2, "", f"trace_footprint: {bad.resolve()}:3: block 0 is allocated twice; first by event 0\n"))
    with_colon = write(events([]), "a:b.csv")
    expect("message for a colon", compared("--trace", with_colon),
           (2, "", f"--trace {with_colon}: there may be no colon in its path, {with_colon.resolve()}\n"))


def report_has_rows_for_user_traces():
    import compare
    on_one, on_two = write(events([("a", 0, 10)]), "on_one.csv"), write(HEADER + "a,0,8,0\nf,0,0,1\n", "on_two.csv")
    in_steps = write(HEADER + "s,0,step,0\na,0,8,0\ne,0,0,0\n", "in_steps.csv")
    os.environ |= environment()
    options = type("options", (), {"trace": [on_one, on_two, in_steps], "plan_seconds": 60,
                                   "build": pathlib.Path(BENCH).parents[1]})
    traces = compare.traces_of(options)
    expect("traces", list(traces), RECORDED + ["on_one", "on_two", "in_steps"])
    for place, of in (("{trace}", list(traces)), ("{threaded_trace}", ["lld_link", "on_two"]),
                      ("{stepped_trace}", [*STEPPED, "in_steps"])):
        row = {"name": f"row of {place}", "ours": f"pool/{place}", "metric": "time", "ratio": 1.0}
        expect(f"rows of {place}", compare.of_each_trace(row, traces),
               [row | {"name": f"row of {trace}", "ours": f"pool/{trace}"} for trace in of])


# ---- footprints ----------------------------------------------------------------------------------------------------

NOISE = 16 * PAGE  # of the stack and of what the program itself writes to for the first time


def blocks_on_their_own_pages_take_their_live_pages():
    chance = random.Random(1)
    for sizes in (lambda c: c.randint(1, 3 * PAGE), lambda c: c.choice((PAGE, PAGE + 1, 50 * PAGE)), lambda c: 0):
        rows = random_events(chance, 600, sizes)
        result, most = measured("own_pages", rows), most_live(rows, in_pages)
        expect("peak_live_bytes", result["peak_live_bytes"], most_live(rows))
        # No peak is missed by more than 0.2 % of the bytes that are live.
        expect_between("footprint", result["peak_footprint_bytes"], most - most_live(rows) // 500, most + NOISE)
        if most > 0:
            expect_between("over_peak", result["over_peak"] * result["peak_live_bytes"],
                           result["peak_footprint_bytes"] * 0.999, result["peak_footprint_bytes"] * 1.001)


def every_page_of_a_block_counts():
    # The C library maps each of these by itself, with two words before it: so the end is in a page more.
    rows = [("a", i, 40 * PAGE) for i in range(200)]
    expect_between("footprint", measured("malloc", rows)["peak_footprint_bytes"], 200 * 41 * PAGE * 0.998,
                   200 * 41 * PAGE + NOISE)


def memory_without_reuse_takes_all_requested_bytes():
    rows = random_events(random.Random(2), 1500, lambda c: c.randint(1, 4 * PAGE))
    asked = sum(size for op, _, size in rows if op == "a")
    result = measured("no_reuse", rows)
    expect("more than the live bytes", asked > 1.5 * most_live(rows), True)
    expect_between("footprint", result["peak_footprint_bytes"], asked * 0.99, asked * 1.02 + NOISE)


def detects_a_peak_of_one_event():
    # Much is live for one event, early, late and among blocks that come and go; and no more than a page besides.
    for before, after in ((10, 3000), (3000, 10), (1500, 1500)):
        rows = [event for i in range(before) for event in (("a", i, 64), ("f", i, 64))]
        rows += [("a", "1000000", 2000 * PAGE), ("f", "1000000", 2000 * PAGE)]
        rows += [event for i in range(before, before + after) for event in (("a", i, 64), ("f", i, 64))]
        for allocator in ("own_pages", "malloc", "pool"):
            result = measured(allocator, rows)
            expect_between(f"footprint of {allocator}", result["peak_footprint_bytes"], 1996 * PAGE, 2200 * PAGE)


def every_allocator_takes_little_more_than_live_bytes():
    # Blocks that only come, of all sizes: to round them up to powers of two takes half as much again.
    chance = random.Random(3)
    sizes = [chance.randint(100, 3000) for _ in range(10800)]
    rows = [("a", i, size) for i, size in enumerate(sizes)]
    for allocator in footprint.allocators(FOOTPRINT, environment()):
        result = measured(allocator, rows)
        expect("peak_live_bytes", result["peak_live_bytes"], sum(sizes))
        expect_between(f"over_peak of {allocator}", result["over_peak"], 0.995, 2.5)


def footprint_excludes_the_memory_of_the_trace():
    # Many events about little memory: read, they take some MB.
    rows = [event for i in range(60000) for event in (("a", i, 100), ("f", i, 100))]
    result = measured("own_pages", rows)
    expect_between("footprint", result["peak_footprint_bytes"], 0, NOISE)
    expect_between("samples", result["samples"], 50, 10000)


def a_trace_without_events_has_no_footprint():
    result = measured("malloc", [])
    expect("live bytes and samples", (result["peak_live_bytes"], result["samples"]), (0, 0))
    expect("over_peak", result["over_peak"], None)
    name = "malloc/footprint/trace"
    expect("measure", footprint.measure(FOOTPRINT, [name], environment(folder / "trace.csv")), {})


def measure_gives_the_ratios_by_name():
    path = write(events([("a", 0, 300 * PAGE)]), "one.csv")
    wanted = {"malloc/footprint/one", "pool/footprint/torch_mlp", "none/footprint/one", "malloc/footprint/none"}
    found = footprint.measure(FOOTPRINT, wanted, environment(path))
    expect("names", set(found), {"malloc/footprint/one", "pool/footprint/torch_mlp"})
    for ratio in found["malloc/footprint/one"]:
        expect_between("a block of 300 pages", ratio, 1.0, 1.1)
    for ratio in found["pool/footprint/torch_mlp"]:
        expect_between("torch_mlp", ratio, 1.0, 2.0)
    expect("runs", [len(ratios) for ratios in found.values()], [3, 3])


with tempfile.TemporaryDirectory(prefix="tidemark-bench-test-") as name:
    folder = pathlib.Path(name)
    globals()[CASE]()
