# SPDX-License-Identifier: Apache-2.0
"""Fails unless a page's first C++ block is tour.cpp without its licence, and the next block is the program's output.

    test_readme.py PAGE SOURCE PROGRAM
"""
import re
import subprocess
import sys

page, source, program = sys.argv[1:]
blocks = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```$", open(page).read(), re.M | re.S)
first = next(i for i, (language, _) in enumerate(blocks) if language == "cpp")
code, output = blocks[first][1], blocks[first + 1][1]
program_text = re.sub(r"\A// SPDX-[^\n]*\n", "", open(source).read())
printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
failures = [what for what, shown, real in (("program", code, program_text), ("output", output, printed)) if shown != real]
for what in failures:
    print(f"{page} shows another {what} than examples/tour has")
print(printed, end="")
sys.exit(1 if failures else 0)
