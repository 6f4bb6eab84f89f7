# SPDX-License-Identifier: Apache-2.0
"""Tests scripts/abi on small libraries. The second library of each pair differs from the first.

    abi_check.py ABI COMPILER CASE
"""
import pathlib
import subprocess
import sys
import tempfile

abi, compiler, case = sys.argv[1:]
OLD = "namespace tidemark { struct options { int size; }; int make(options const& o) { return o.size; } }\n"
# Instances of the standard library's templates have the lambda's file and line in their name.
THREADS = """#include <thread>
namespace tidemark {
struct monitor {
  monitor() : thread{[this] { ++runs; }} {}
  std::thread thread;
  int runs = 0;
};
monitor* make() { return new monitor; }
}
"""
# The first library, the second one, and whether programs of the first may run with it.
CASES = {
    "accepts_a_function_that_is_added": (OLD, OLD + "namespace tidemark { int more() { return 1; } }\n", True),
    "finds_a_function_that_is_gone": (OLD, OLD.replace("make(", "make_it("), False),
    "finds_a_layout_that_changed": (OLD, OLD.replace("int size;", "char first; int size;"), False),
    "accepts_a_lambda_that_lies_elsewhere": (THREADS, "\n\n" + THREADS, True),
    "finds_a_layout_that_changed_beside_a_lambda": (THREADS, THREADS.replace("int runs", "long runs"), False),
}
old, new, compatible = CASES[case]
with tempfile.TemporaryDirectory() as folder:
    libraries = []
    for name, text in ("old", old), ("new", new):
        source = pathlib.Path(folder) / name / "source.cpp"
        source.parent.mkdir()
        source.write_text(text)
        library = pathlib.Path(folder) / f"lib{name}.so"
        subprocess.run([compiler, "-std=c++20", "-gdwarf-4", "-shared", "-fPIC", source, "-o", library], check=True)
        libraries.append(library)
    done = subprocess.run([abi, "diff", *libraries], capture_output=True, text=True)
print(done.stdout + done.stderr)
if (done.returncode == 0) != compatible or (" differs from " in done.stderr) == compatible:
    sys.exit(f"scripts/abi must {'accept' if compatible else 'reject'} the second library")
