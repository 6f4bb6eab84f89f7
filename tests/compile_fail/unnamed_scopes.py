# SPDX-License-Identifier: Apache-2.0
"""Compiles a file and expects a warning about a discarded object for each line that ends in `// warns`, and no other.
A line that ends in `// warns: name the scope` expects this text in the warning."""
import re
import subprocess
import sys

source, *compile_command = sys.argv[1:]
done = subprocess.run([*compile_command, "-Wall", "-Wextra", "-fsyntax-only", source], capture_output=True, text=True)
found = {int(line): text for line, kind, text in re.findall(r"\.cpp:(\d+):\d+: (warning|error|fatal error): (.*)", done.stderr)}
marked = ((number, re.search(r"// warns(?:: (.*))?$", line)) for number, line in enumerate(open(source), 1))
expected = {number: mark[1] or "" for number, mark in marked if mark}
failures = [f"line {number} has no warning" for number in sorted(expected - found.keys())]
failures += [f"line {number}: {text}" for number, text in sorted(found.items())
             if number not in expected or expected[number] not in text or not re.search("nodiscard|warn_unused_result", text)]
if done.returncode != 0:
    failures.append(done.stderr)
print(f"{len(expected)} unnamed scopes, {len(failures)} failures", *failures, sep="\n")
sys.exit(1 if failures or not expected else 0)
