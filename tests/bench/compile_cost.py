# SPDX-License-Identifier: Apache-2.0
"""The compile cost of headers and modules has limits: compile_cost.py COMPILER FLAG...

Counts depend on the compiler and the standard library, not on the machine's load. The table is for clang 22 with
libstdc++ 12; the test is skipped with others. A count 3 % above the table fails. Seconds are only printed.

    --instructions        also counts instructions of the compiler with Valgrind, for headers whose table has them
    --interfaces FOLDER   also limits the bytes of the compiled interfaces of the host's modules in FOLDER
"""
import argparse
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

# Lines after preprocessing; template specializations of classes; millions of instructions of the compiler. The targets are
# 45,000 lines for <tidemark/arena.hpp>, of which 29,323 are <memory_resource>, and 60 MB of interfaces
# (decision 98).
COUNTS = {
    "tidemark/arena.hpp": {"lines": 37_513, "specializations": 2_975, "instructions": 1_902},
    "tidemark/pool.hpp": {"lines": 65_781, "specializations": 3_463},
    "tidemark/tidemark.hpp": {"lines": 82_444, "specializations": 9_051, "instructions": 4_659},
}
INTERFACE_BYTES = 23_320_000
MEASURED_WITH = ("22", "12")
TOLERANCE = 0.03
SKIPPED = 77

options = argparse.ArgumentParser()
options.add_argument("compiler")
options.add_argument("--instructions", action="store_true")
options.add_argument("--interfaces", type=pathlib.Path)
options, flags = options.parse_known_args()


def output(*command, **stream):
    return subprocess.run([*map(str, command)], check=True, text=True, capture_output=True, **stream)


def compiled(header, *more):
    """Returns the command that compiles a source which includes only `header`."""
    return [options.compiler, "-std=c++20", *flags, *more, "-x", "c++", "-include", header, "/dev/null"]


def is_measured():
    macros = output(*compiled("version", "-dM", "-E")).stdout
    found = tuple(re.search(rf"#define {name} (\d+)", macros) for name in ("__clang_major__", "_GLIBCXX_RELEASE"))
    return tuple(match and match[1] for match in found) == MEASURED_WITH


def counts(header):
    found = {"lines": len(output(*compiled(header, "-E", "-P")).stdout.splitlines())}
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    stats = output(*compiled(header, "-fsyntax-only", "-Xclang", "-print-stats")).stderr
    print(f"<{header}>: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before:.2f} s of CPU")
    found["specializations"] = int(re.search(r"(\d+) ClassTemplateSpecialization decls", stats)[1])
    if options.instructions and "instructions" in COUNTS[header]:
        # `-cc1`, because the driver would start it as a second process.
        front_end = re.findall(r'^ "(.*)"$', output(*compiled(header, "-fsyntax-only", "-###")).stderr, re.M)[-1].split('" "')
        with tempfile.TemporaryDirectory() as folder:
            counted = output("valgrind", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={folder}/out", *front_end)
        found["instructions"] = int(re.search(r"I\s+refs:\s+([\d,]+)", counted.stderr)[1].replace(",", "")) // 1_000_000
    return found


if not is_measured():
    print(f"not clang {MEASURED_WITH[0]} with libstdc++ {MEASURED_WITH[1]}: there is no table")
    sys.exit(SKIPPED)
failures = []
for header, wanted in COUNTS.items():
    for what, count in counts(header).items():
        print(f"<{header}>: {count:,} {what}, {wanted[what]:,} in the table")
        if count > (1 + TOLERANCE) * wanted[what]:
            failures.append(f"<{header}> has {count} {what}; the table has {wanted[what]}")
if options.interfaces:
    sizes = [file.stat().st_size for file in options.interfaces.glob("*.pcm")]
    print(f"{len(sizes)} compiled interfaces of the host's modules: {sum(sizes):,} bytes, {INTERFACE_BYTES:,} in the table")
    if not sizes or sum(sizes) > (1 + TOLERANCE) * INTERFACE_BYTES:
        failures.append(f"the compiled interfaces have {sum(sizes)} bytes; the table has {INTERFACE_BYTES}")
sys.exit("\n".join(failures) or 0)
