# SPDX-License-Identifier: Apache-2.0
"""What tests/gpu/go, the script of a pack for a machine with a GPU, does with programs that fail, hang or do not load."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

script, wanted = sys.argv[1:]

RULES = 'case $1 in list) printf "yes\\nno\\n" ;; yes) echo "| yes |" ;; no) echo "| no |"; exit 3 ;; esac'
TESTS = """case $1 in
  --gtest_list_tests) printf "suite.\\n  passes\\n  fails\\n  hangs\\n  passes_too  # GetParam() = 1\\n" ;;
  *.passes) echo passed ;;
  *.fails) echo broken; exit 1 ;;
  *.hangs) echo begun; sleep 60 ;;
esac"""
PROGRAMS = {"tidemark_gpu_device": "echo a device", "tidemark_gpu_rules": RULES, "tidemark_gpu_questions": "echo answers",
            "tidemark_gpu_tests": TESTS, "tidemark_gpu_thrust_tests": TESTS.replace("suite.", "thrust."),
            "tidemark_gpu_table": "echo numbers", "graph_replay": "echo replayed", "thrust_vectors": "exit 1",
            "tidemark_gpu_use_after_rewind": "echo ran"}


class Pack:
    """A folder as scripts/pack_gpu makes it, of shell scripts."""

    def __init__(self, place, **programs):
        self.place = pathlib.Path(place)
        shutil.copy(script, self.place / "go")
        (self.place / "bin").mkdir()
        for name, text in (PROGRAMS | programs).items():
            text = text if text.startswith("#!") else f"#!/bin/sh\n{text}\n"
            (self.place / "bin" / name).write_text(text)
            (self.place / "bin" / name).chmod(0o755)
        for name in ("torch_peer.py", "torch_allocator.py"):
            shutil.copy(pathlib.Path(script).parent / name, self.place)

    def go(self, *options, seconds="52"):
        done = subprocess.run([self.place / "go", *options], capture_output=True, text=True, timeout=60,
                              env={"PATH": "/usr/bin:/bin", "TIDEMARK_GPU_SECONDS": seconds})
        return done.returncode, done.stdout + done.stderr

    def said(self, name):
        return (self.place / "out" / name).read_text()


def expect(holds, what, seen):
    if not holds:
        sys.exit(f"{what}; it was: {seen}")


def a_program_that_lists_nothing_fails(place):
    pack = Pack(place, tidemark_gpu_tests="exit 0", tidemark_gpu_rules="exit 139")
    status, text = pack.go("tests", "rules")
    expect(status == 1 and "failed: tests rules" in text, "neither says what there is", text)
    expect("the list of bin/tidemark_gpu_tests" in text, "it is named", text)


def a_skipped_test_is_counted_as_such(place):
    pack = Pack(place, tidemark_gpu_tests=TESTS.replace("echo passed", "echo 'x.cpp:1: Skipped'").replace("exit 1", "exit 0").replace("sleep 60", "true"))
    pack = pack.go("tests", seconds="26")
    expect("skipped" in pack[1] and "test suite.passes" in pack[1], "one is skipped", pack[1])


def without_a_device_it_says_so(place):
    pack = Pack(place, tidemark_gpu_device="echo no CUDA device; exit 1")
    status, text = pack.go()
    expect(status == 0 and "no CUDA device; left out: rules questions" in text, "there is no device, which is no fault", text)
    status, text = pack.go("--require-gpu")
    expect(status == 1 and "no CUDA device" in text, "a device was required", text)


def a_program_that_does_not_load_is_named(place):
    status, text = Pack(place, tidemark_gpu_table="#!/no/such/loader").go()
    expect(status == 1 and "bin/tidemark_gpu_table does not load" in text, "one does not load", text)
    expect("a device" not in text, "nothing is run then", text)


def what_hangs_is_stopped_and_nothing_is_lost(place):
    pack = Pack(place)
    status, text = pack.go("tests", "questions", seconds="26")  # which gives a test three
    expect(status == 1 and "failed: tests\n" in text, "two tests do not pass", text)
    expect("stopped" in text and "test suite.hangs: it took too long" in text, "one was stopped", text)
    expect("test thrust.fails: exit status 1" in text, "one failed", text)
    expect("4 ok" in text and "of 8 tests" in text, "the others were run", text)
    expect(pack.said("tests/suite.hangs.txt") == "begun\n", "what it said stays", text)
    expect(pack.said("tests/suite.passes.txt") == "passed\n", "each has a file of its own", text)
    expect(pack.said("questions.txt") == "answers\n", "what comes behind it is run", text)
    expect("stopped" in pack.said("summary.txt"), "the summary has it", pack.said("summary.txt"))


def what_there_is_no_time_for_is_named(place):
    pack = Pack(place, tidemark_gpu_questions="sleep 60")
    status, text = pack.go("questions", "table", seconds="1")
    expect(status == 1 and "no time" in text and "failed: questions table" in text, "there was a second in all", text)


def a_rule_that_is_refuted_is_an_answer(place):
    pack = Pack(place)
    status, text = pack.go("rules")
    expect(status == 0 and "refuted" in text and "rule no" in text, "an answer is no failure", text)
    expect(pack.said("rules.md").splitlines()[2:] == ["| yes |", "| no |"], "they are one table", pack.said("rules.md"))


def what_is_missing_is_left_out_with_the_reason(place):
    status, text = Pack(place).go("memcheck", "use_after_rewind", "table", "pytorch")
    expect(status == 0 and "memcheck: compute-sanitizer is not here" in text, "there is none", text)
    expect("skipped" in text and "PyTorch's allocator" in text, "there is none", text)
    expect("PyTorch on tidemark's allocator" in text, "it needs PyTorch", text)


def bad_option_is_one_sentence(place):
    for options, said in ((["--fast"], "there is no step '--fast'"), (["--out"], "--out names no folder")):
        status, text = Pack(tempfile.mkdtemp(dir=place)).go(*options)
        expect(status == 2 and text.startswith(f"tidemark: {said}\n"), "that is no option", text)
    status, text = Pack(tempfile.mkdtemp(dir=place)).go(seconds="ten")
    expect(status == 2 and "which is no number of seconds" in text, "that is no number", text)


with tempfile.TemporaryDirectory() as folder:
    globals()[wanted](folder)
