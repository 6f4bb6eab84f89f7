# SPDX-License-Identifier: Apache-2.0
"""Runs the program `reported` with a tool that NVTX loads, and compares the calls that reach the tool.

usage: check.py PROGRAM TOOL CASE
"""
import os
import subprocess
import sys

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


DOMAIN = ["domain tidemark"]
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
MEMORY = HEAP + SCOPE + REST


def a_tool_sees_memory():
    return reported(tool), DOMAIN + MEMORY


def without_a_tool_all_is_as_ever():
    return reported(), []


def a_tool_that_cannot_be_loaded_does_no_harm():
    return reported(str(tool) + ".not_there"), []


def a_tool_without_domains_sees_memory():
    return reported(tool, only="memory"), MEMORY


seen, expected = globals()[case]()
if seen != expected:
    sys.exit("the tool saw\n  " + "\n  ".join(seen) + "\nand should have seen\n  " + "\n  ".join(expected))
