# SPDX-License-Identifier: Apache-2.0
"""Compiles a file once as it is, which must succeed, and once for each CASE in it, which must fail as it says."""
import re
import subprocess
import sys

source, *compile_command = sys.argv[1:]


def compile_case(number):
    return subprocess.run([*compile_command, "-Werror", "-fsyntax-only", f"-DCASE={number}", source],
                          capture_output=True, text=True)


cases = re.findall(r"CASE == (\d+)\s+// message: (.*)", open(source).read())
failures = []
plain = compile_case(0)
if plain.returncode != 0:
    failures.append(f"must compile without a case:\n{plain.stderr}")
for number, message in cases:
    result = compile_case(number)
    if result.returncode == 0:
        failures.append(f"case {number} compiles and must not")
    elif not re.search(message, result.stderr):
        failures.append(f"case {number} fails without '{message}':\n{result.stderr}")
print(f"{len(cases)} cases, {len(failures)} failures", *failures, sep="\n")
sys.exit(1 if failures or not cases else 0)
