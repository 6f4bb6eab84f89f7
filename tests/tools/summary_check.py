# SPDX-License-Identifier: Apache-2.0
"""Checks the output of scripts/summary at the end of ./run test, from folders like those of ctest, CMake and
Ninja."""
import pathlib
import subprocess
import sys
import tempfile

program, wanted = sys.argv[1:]

CASE = '<testcase name="{name}" time="{time}" status="{status}">{inside}</testcase>'
PASSED = CASE.format(name="arena.grows", time="1.5", status="run", inside="<system-out>ok</system-out>")
SKIPPED = CASE.format(name="gpu.runs", time="0.1", status="notrun", inside='<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/><system-out>'
                      "gpu_test.hpp:20: Skipped\nthere is no device\n\n[  SKIPPED ] gpu.runs</system-out>")
SUITE = CASE.format(name="arena.*", time="1", status="run", inside="<system-out>arena_test.cpp:9: Skipped\nfound at level 2\n\n"
                    "[==========] 5 tests from 1 test suite ran. (9 ms total)\n[  PASSED  ] 4 tests.\n[  SKIPPED ] 1 test.</system-out>")
NOT_BUILT = CASE.format(name="pool_NOT_BUILT", time="0", status="notrun", inside='<skipped message="Unable to find executable"/>')
FAILED = CASE.format(name="pool.shrinks", time="0.4", status="fail", inside="<failure/><system-out>no</system-out>")
NINJA_LOG = "# ninja log v5\n0\t2500\t0\tCMakeFiles/lib.dir/a.cpp.o\t1\n0\t500\t0\tlib.a\t2\n"


def summary(*folders, options=()):
    """Runs it on folders with these names, cases, and left-out lines. Returns its exit status and its
    lines."""
    with tempfile.TemporaryDirectory() as place:
        paths = []
        for name, cases, left_out in folders:
            paths.append(pathlib.Path(place, name))
            paths[-1].mkdir()
            (paths[-1] / ".ninja_log").write_text(NINJA_LOG)
            (paths[-1] / "left_out.txt").write_text(left_out)
            if cases is not None:
                (paths[-1] / "tests.xml").write_text(f"<testsuite>{''.join(cases)}</testsuite>")
        done = subprocess.run([program, *options, *paths], capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines()


def expect(holds, what, seen):
    if not holds:
        sys.exit(f"{what}; it was: {seen}")


def reports_passed_skipped_and_left_out_tests():
    status, lines = summary(("dev", [PASSED, PASSED, SKIPPED], "the benchmarks: none\n"),
                            ("asan", [PASSED], "the benchmarks: none\n"), options=["--left-out", "threads: ./run sanitize"])
    expect(status == 0, "a run without a failure succeeds", status)
    expect(lines[1].split() == ["dev", "2", "0", "1", "3"], "each preset has its counts and seconds", lines[1])
    expect("skipped 1: there is no device" in lines, "a skipped test's reason is given", lines)
    expect("left out of dev, asan: the benchmarks: none" in lines, "what was left out is named once", lines)
    expect("left out: threads: ./run sanitize" in lines, "so is what no preset of this run has", lines)
    expect(lines[-1] == "3 passed, 0 failed, 1 skipped", "the last line counts all", lines[-1])


def counts_each_test_of_a_suite_that_runs_as_one():
    status, lines = summary(("asan", [PASSED, SUITE], ""))
    expect(status == 0 and lines[-1] == "5 passed, 0 failed, 1 skipped", "each test of a suite counts", lines)
    expect("skipped 1: found at level 2" in lines, "the reasons of a suite's skipped tests are given", lines)


def fails_if_a_test_failed_or_nothing_ran():
    status, lines = summary(("dev", [PASSED, FAILED], ""))
    expect(status == 1 and "FAILED dev: pool.shrinks" in lines, "a failed test is named and makes it fail", (status, lines))
    status, lines = summary(("dev", [PASSED, NOT_BUILT], ""))
    expect(status == 1 and "FAILED dev: pool_NOT_BUILT" in lines, "a test that is not there is no skipped one", (status, lines))
    status, lines = summary(("dev", [PASSED], ""), ("cuda", None, ""))
    expect(status == 1 and any(line.startswith("cuda: no results") for line in lines),
           "a preset that was not built makes it fail", (status, lines))
    status, lines = summary(("dev", [SKIPPED], ""))
    expect(status == 1, "a run in which no test passed fails", (status, lines))


def reports_times_of_compiling_and_testing():
    status, lines = summary(("dev", [PASSED, FAILED], ""), options=["--times"])
    expect(status == 0, "times are printed", status)
    for line in ("| dev | **compiling** | 3 | |", "| dev | **testing** | 2 | |", "| dev | compile `lib` | 2 | 1 |",
                 "| dev | test `arena` | 2 | 1 |"):
        expect(line in lines, f"'{line}' is in the table", lines)


globals()[wanted]()
