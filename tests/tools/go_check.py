# SPDX-License-Identifier: Apache-2.0
"""Runs tests/gpu/go, the script of a pack for a machine with a GPU, with programs that fail, hang or do not
load."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

script, wanted = sys.argv[1:]

RULES = 'case $1 in list) printf "yes\\nno\\n" ;; yes) echo "| yes |" ;; no) echo "| no |"; exit 3 ;; esac'
TESTS = """case $1 in
  --gtest_list_tests) printf "suite_that_passes.\\n  one  # GetParam() = 1\\n  two\\nfails.\\n  one\\nhangs.\\n  one\\npasses_too.\\n  one\\n" ;;
  *passes*) echo passed ;;
  *fails*) echo broken; exit 1 ;;
  *hangs*) echo begun; sleep 60 ;;
esac"""
PROGRAMS = {"tidemark_gpu_device": "echo a device", "tidemark_gpu_rules": RULES,
            "tidemark_gpu_tests": TESTS, "tidemark_gpu_thrust_tests": TESTS.replace("fails", "thrust_fails").replace("sleep 60", "true"),
            "tidemark_gpu_table": "echo numbers", "graph_replay": "echo replayed", "thrust_vectors": "exit 1",
            "tidemark_gpu_thrust": "echo pipelines", "tidemark_gpu_nccl": "echo 'skipped: libnccl.so.2 is not here'; exit 77",
            "tidemark_gpu_use_after_rewind": "echo ran", "tidemark_gpu_graph_copy": "echo copied"}

# A stand-in for compute-sanitizer: prints its report for each case of use_after_rewind. The last argument is the case; options precede it.
SANITIZER = """echo '========= COMPUTE-SANITIZER'
case "$*" in
  *'--nvtx no'* | *right) ;;
  *rewound | *reset) echo '========= Invalid __global__ read of size 4 bytes'; exit 9 ;;
  *padding) echo '========= Invalid __global__ write of size 4 bytes'; exit 9 ;;
  *leaked) echo '========= Leaked 4 bytes at 0x7f0000000000 called arena that leaks'; exit 9 ;;
esac"""


class Pack:
    """A folder of shell scripts with the layout of scripts/pack_gpu."""

    def __init__(self, place, **programs):
        self.place = pathlib.Path(place)
        shutil.copy(script, self.place / "go")
        (self.place / "bin").mkdir()
        for name, text in (PROGRAMS | programs).items():
            text = text if text.startswith("#!") else f"#!/bin/sh\n{text}\n"
            (self.place / "bin" / name).write_text(text)
            (self.place / "bin" / name).chmod(0o755)
        for name in ("torch_peer.py", "torch_allocator.py", "torch_training.py"):
            shutil.copy(pathlib.Path(script).parents[2] / "bench/gpu" / name, self.place)

    def go(self, *options, seconds="29", sanitizer=None):
        settings = {"PATH": "/usr/bin:/bin", "TIDEMARK_GPU_SECONDS": seconds}
        if sanitizer is not None:
            program = self.place / "sanitizer"
            program.write_text(f"#!/bin/sh\n{sanitizer}\n")
            program.chmod(0o755)
            settings["COMPUTE_SANITIZER"] = str(program)
        done = subprocess.run([self.place / "go", *options], capture_output=True, text=True, timeout=60, env=settings)
        return done.returncode, done.stdout + done.stderr

    def said(self, name):
        return (self.place / "out" / name).read_text()


def expect(holds, what, seen):
    if not holds:
        sys.exit(f"{what}; it was: {seen}")


def a_program_that_lists_nothing_fails():
    pack = Pack(place, tidemark_gpu_tests="exit 0", tidemark_gpu_rules="exit 139")
    status, text = pack.go("tests", "rules")
    expect(status == 1 and "failed: tests rules" in text, "neither program lists a name", text)
    expect("the list of bin/tidemark_gpu_tests" in text, "it is named", text)


def counts_a_skipped_test_as_skipped():
    pack = Pack(place, tidemark_gpu_tests=TESTS.replace("echo passed", "echo 'x.cpp:1: Skipped'").replace("exit 1", "exit 0").replace("sleep 60", "true"))
    pack = pack.go("tests", seconds="29")
    expect("skipped" in pack[1] and "tests of suite_that_passes." in pack[1], "one is skipped", pack[1])


def reports_a_missing_device():
    pack = Pack(place, tidemark_gpu_device="echo no CUDA device; exit 1")
    status, text = pack.go()
    expect(status == 0 and "no CUDA device; left out: rules tests" in text, "a missing device is not an error", text)
    status, text = pack.go("--require-gpu")
    expect(status == 1 and "no CUDA device" in text, "a device was required", text)


def names_a_program_that_does_not_load():
    status, text = Pack(place, tidemark_gpu_table="#!/no/such/loader").go()
    expect(status == 1 and "bin/tidemark_gpu_table does not load" in text, "one does not load", text)
    expect("a device" not in text, "no program runs then", text)


def stops_a_hanging_suite_and_keeps_all_output():
    pack = Pack(place)
    status, text = pack.go("tests", "table", seconds="14")  # a suite gets three of them
    expect(status == 1 and "failed: tests\n" in text, "three suites do not pass", text)
    expect("stopped" in text and "tests of hangs.: it took too long" in text, "one was stopped", text)
    expect("tests of thrust_fails.: exit status 1" in text, "one failed", text)
    expect("5 ok" in text and "of 8 suites of tests" in text, "the others were run", text)
    expect(pack.said("tests/hangs..txt") == "begun\n", "its output is kept", text)
    expect(pack.said("tests/suite_that_passes..txt") == "passed\n", "each has its own file", text)
    expect(pack.said("table.txt") == "numbers\n", "the next step runs", text)
    expect("stopped" in pack.said("summary.txt"), "the summary has it", pack.said("summary.txt"))


def reports_steps_without_time_left():
    pack = Pack(place, tidemark_gpu_table="sleep 60")
    status, text = pack.go("table", "thrust", seconds="1")
    expect(status == 1 and "no time" in text and "failed: table thrust" in text, "all steps together had one second", text)


def refuted_rule_counts_as_an_answer():
    pack = Pack(place)
    status, text = pack.go("rules")
    expect(status == 0 and "refuted" in text and "rule no" in text, "an answer is no failure", text)
    expect(pack.said("rules.md").splitlines()[2:] == ["| yes |", "| no |"], "all rows are in one table", pack.said("rules.md"))


def skips_steps_with_missing_software_and_states_the_reason():
    status, text = Pack(place).go("memcheck", "use_after_rewind", "table", "pytorch", "training", "nccl", sanitizer="exit 1")
    (pathlib.Path(place) / "sanitizer").unlink()
    expect("skipped" in text and "PyTorch's allocator" in text, "PyTorch is missing", text)
    expect("PyTorch on tidemark's allocator" in text and "training with PyTorch\n" in text and "training with PyTorch by lengths" in text,
           "they need PyTorch", text)
    expect("skipped" in text and " nccl" in text, "NCCL is missing", text)


def requires_the_expected_report_for_each_wrong_use():
    """An error of another kind is a failure, although compute-sanitizer's exit status is the same."""
    pack = Pack(place)
    status, text = pack.go("use_after_rewind", sanitizer=SANITIZER)
    expect(status == 0 and "failed" not in text, "each case is reported as it must be", text)
    other = "echo '========= Program hit CUDA_ERROR_INVALID_CONTEXT (error 201) on CUDA API call to cuStreamCreate'; exit 9"
    status, text = pack.go("use_after_rewind", sanitizer=other)
    expect(status == 1 and "rewound, annotations read: yes: 1 errors, and each should be: Invalid __global__ read" in text,
           "another error is reported", text)
    refused = SANITIZER + "\necho '========= Warning: One or more of the parameters is invalid'"
    status, text = pack.go("use_after_rewind", sanitizer=refused)
    expect(status == 1 and "the tool refused annotations" in text, "annotations were refused", text)


def fails_if_a_tool_reports_an_error_in_the_tests():
    pack = Pack(place, tidemark_gpu_tests="echo passed")
    status, text = pack.go("memcheck", sanitizer="echo '========= ERROR SUMMARY: 0 errors'")
    expect(status == 0 and "memcheck of the tests: no error\n" in text, "no error is reported", text)
    status, text = pack.go("memcheck", sanitizer="echo '========= Invalid __global__ read of size 4 bytes'; exit 0")
    expect(status == 1 and "memcheck of the tests: 1 errors" in text, "an error fails for any exit status", text)


def leaves_out_tests_with_false_reports_of_the_tool():
    """initcheck runs a program without tidemark first."""
    pack = Pack(place, tidemark_gpu_tests="echo passed")
    recording = """echo "$*" >>"$(dirname "$0")/arguments"
case "$*" in
  *graph_copy | *reused) echo '========= Uninitialized access at 0x7f0000000000 on access by cudaMemcpy source'; exit 9 ;;
esac"""
    status, text = pack.go("initcheck", sanitizer=recording)
    expect(status == 0 and "tests of graphs are left out" in text, "the tool reports a copy that is right", text)
    expect("initcheck reports a block at a reused address as uninitialised" in text, "the question is answered", text)
    expect("--gtest_filter=-graph_gpu.*:plan_gpu.*:thrust_gpu.*captured*" in (pathlib.Path(place) / "arguments").read_text(), "they are left out", text)


def writes_the_results_of_a_run_into_the_page():
    """Runs ./run gpu --document on a copy of the page."""
    document = pathlib.Path(script).parents[2] / "scripts" / "document_gpu.py"
    page, out = pathlib.Path(place) / "page.md", pathlib.Path(place) / "out"
    page.write_text("# Page\n\n<!-- measured: costs -->\nold\n<!-- end of costs -->\n\nBehind it.\n\n<!-- measured: rules -->\nkept\n"
                    "<!-- end of rules -->\n")
    out.mkdir()

    def written():
        done = subprocess.run([sys.executable, document, out, page], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    status, text = written()
    expect(status == 1 and "device.txt is missing" in text, "the file is missing", text)
    (out / "device.txt").write_text("A card, driver 1.2.3, CUDA 13.0, 2026-11-27, commit abcdef0\n")
    status, text = written()
    expect(status == 1 and "has no result" in text, "the run has no results", text)
    (out / "table.txt").write_text("table: a card\n\n## Costs\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    status, text = written()
    expect(status == 0 and "wrote costs" in text and "rules (rules.md)" in text, "one table was written", text)
    expect(page.read_text() == "# Page\n\n<!-- measured: costs -->\n\n"
           "A card, driver 1.2.3, CUDA 13.0, 2026-11-27, commit abcdef0.\n\n### Costs\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n<!-- end of costs -->\n\nBehind it.\n\n<!-- measured: rules -->\nkept\n"
           "<!-- end of rules -->\n", "the other table stays", page.read_text())
    (out / "table.txt").write_text("| bytes | allocator | p50 | p99 |\n|---|---|---|---|\n| 1 | a | 10 | 11 |\n| 1 | b | 12 | 13 |\n| 2 | a | 14 | 15 |\n")
    (out / "rules.md").write_text("| call | global | relaxed |\n|---|---|---|\n| x | CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, ends the capture | allowed |\n"
                                  "| y | CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, ends the capture | allowed |\n")
    for _ in range(2):
        written()
        expect(page.read_text() == "# Page\n\n<!-- measured: costs -->\n\n"
               "A card, driver 1.2.3, CUDA 13.0, 2026-11-27, commit abcdef0.\n\n| allocator: p50, p99 | 1 bytes | 2 bytes |\n|---|---|---|\n"
               "| a | 10, 11 | 14, 15 |\n| b | 12, 13 | |\n\n<!-- end of costs -->\n\nBehind it.\n\n<!-- measured: rules -->\n\n"
               "| call | global | relaxed |\n|---|---|---|\n| x, y | refused | allowed |\n\n<!-- end of rules -->\n",
               "tables are shortened, and the run is named once", page.read_text())
    (out / "device.txt").write_text("A card, driver 1.2.4, CUDA 13.0, 2026-11-28, commit abcdef1\n")
    (out / "rules.md").unlink()
    written()
    expect(page.read_text().count("A card, driver 1.2.4") == 1 and page.read_text().count("A card, driver 1.2.3") == 1,
           "a table keeps its run if the table above is of another run", page.read_text())
    (out / "nccl.txt").write_text("nccl: a card\n\n| a |\n|---|\n")
    status, text = written()
    expect(status == 1 and "has no place for nccl.txt" in text, "the page lacks a place", text)


def bad_option_is_one_sentence():
    for options, said in ((["--fast"], "unknown step '--fast'"), (["--out"], "--out needs a folder")):
        status, text = Pack(tempfile.mkdtemp(dir=place)).go(*options)
        expect(status == 2 and text.startswith(f"tidemark: {said}\n"), "the option is rejected", text)
    status, text = Pack(tempfile.mkdtemp(dir=place)).go(seconds="ten")
    expect(status == 2 and "must be a number of seconds" in text, "it is not a number", text)


with tempfile.TemporaryDirectory() as place:
    globals()[wanted]()
