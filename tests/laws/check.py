# SPDX-License-Identifier: Apache-2.0
"""Compiles the laws at each of these optimisation levels, and with checks of null and bounds. Runs each program."""
import os
import subprocess
import sys
import tempfile

source, library, levels, compiler, *flags = sys.argv[1:]
# The checks trap: no runtime library of a sanitizer is needed, and a late access still ends its process.
trap = "-fsanitize-trap=null,bounds" if "clang" in os.path.basename(compiler) else "-fsanitize-undefined-trap-on-error"
settings = [[f"-O{level}"] for level in levels] + [["-O2", "-fsanitize=null,bounds", trap]]

failures = []
with tempfile.TemporaryDirectory() as scratch:
    program = os.path.join(scratch, "laws")
    for setting in settings:
        command = [compiler, *flags, *setting, "-Wall", "-Wextra", "-Werror", source, library, "-pthread", "-o", program]
        for step in (command, [program]):
            done = subprocess.run(step, capture_output=True, text=True)
            if done.returncode != 0:
                failures.append(f"{' '.join(setting)}: {os.path.basename(step[0])} ended with {done.returncode}\n{done.stdout}{done.stderr}")
                break
print(f"{len(settings)} settings of {compiler}, {len(failures)} failures", *failures, sep="\n")
sys.exit(1 if failures else 0)
