# SPDX-License-Identifier: Apache-2.0
"""Runs the program `reported` with a tool that NVTX loads, and compares the calls that reach the tool.

usage: check.py PROGRAM TOOL CASE
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

program, tool, case = sys.argv[1:]


def reported(tool=None, only=None):
    """Returns the lines that the tool prints between those of the program."""
    environment = {name: value for name, value in os.environ.items() if name != "NVTX_INJECTION64_PATH"}
    if tool is not None:
        environment["NVTX_INJECTION64_PATH"] = str(tool)
    if only is not None:
        environment["INJECTED_TOOL"] = only
    result = subprocess.run([program], capture_output=True, text=True, env=environment)
    if result.returncode != 0:
        sys.exit(f"ended with status {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout.splitlines()


def ranges_of_use(first):
    """Returns the ranges that use_ranges of the program begins and ends, if the tool has given numbers below
    `first`."""
    names = ["training of category 3", "step of category 1", "solver of category 2"]
    return ([f"range {first + i} begins: {name}" for i, name in enumerate(names)] +
            [f"range {first + i} ends" for i in (2, 1, 0)])


DOMAIN = ["domain tidemark", "category 1 is arena scope", "category 2 is workspace scope", "category 3 is epoch"]
HEAP = ["heap 1000: 4000000000000000, 65536 bytes, device step",
        "region of heap 1000: 4000000000000000, 100 bytes",
        "name 4000000000000000: device step"]
SCOPE = ["region of heap 1000: 4000000000000100, 200 bytes",
         "name 4000000000000100: device step",
         "region of heap 1000: 4000000000000200, 300 bytes",
         "name 4000000000000200: device step",
         "unregister region 4000000000000100",
         "unregister region 4000000000000200"]
REST = ["resize region 4000000000000000: 1000 bytes",
        "reset heap 1000",
        "unregister heap 1000"]
BEFORE, AFTER = ["-- device memory"], ["-- device memory has been seen"]


def scope(number):
    return [f"range {number} begins: device step of category 1"], [f"range {number} ends"]


def memory(range_number):
    """Returns the reports of use_device_memory, with the range of its scope or without."""
    begin, end = scope(range_number) if range_number is not None else ([], [])
    return HEAP + begin + SCOPE + end + REST


def a_tool_sees_memory_and_ranges():
    return reported(tool), DOMAIN + ranges_of_use(1) + BEFORE + memory(4) + AFTER + ranges_of_use(5)


def without_a_tool_all_is_as_ever():
    return reported(), BEFORE + AFTER


def a_tool_that_cannot_be_loaded_does_no_harm():
    return reported(str(tool) + ".not_there"), BEFORE + AFTER


def a_tool_of_memory_alone_sees_memory():
    return reported(tool, only="memory"), BEFORE + memory(None) + AFTER


def a_tool_of_ranges_alone_sees_ranges():
    begin, end = scope(4)
    return reported(tool, only="ranges"), DOMAIN + ranges_of_use(1) + BEFORE + begin + end + AFTER + ranges_of_use(5)


def compute_sanitizer_sees_nothing_before_device_memory():
    """compute-sanitizer forbids calls before CUDA is initialized. Its library is recognized by name."""
    with tempfile.TemporaryDirectory() as directory:
        alias = pathlib.Path(directory) / "libsanitizer-collection.so"
        shutil.copy(tool, alias)
        return reported(alias), BEFORE + DOMAIN + memory(1) + AFTER + ranges_of_use(2)


seen, expected = globals()[case]()
if seen != expected:
    sys.exit("the tool saw\n  " + "\n  ".join(seen) + "\nand should have seen\n  " + "\n  ".join(expected))
