# SPDX-License-Identifier: Apache-2.0
"""Compiles a file once as it is, which must succeed, and once for each CASE in it, which must fail as it says."""
import os
import re
import subprocess
import sys
import tempfile

source, *compile_command = sys.argv[1:]


def precompile(folder):
    """Options that bring along what the file includes, so that it is read once and not for each case."""
    header = os.path.join(folder, "included.hpp")
    with open(header, "w") as out:
        out.writelines(line for line in open(source) if line.startswith("#include <"))
    is_clang = "clang" in os.path.basename(compile_command[0])
    made = header + (".pch" if is_clang else ".gch")
    # Clang would otherwise instantiate for each case what the headers leave to the end of the file: seven times slower.
    once = ["-fpch-instantiate-templates"] if is_clang else []
    done = subprocess.run([*compile_command, *once, "-x", "c++-header", header, "-o", made], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"what {source} includes does not compile:\n{done.stderr}")
    return ["-include-pch", made] if is_clang else ["-include", header]


def compile_case(number):
    return subprocess.run([*compile_command, *included, "-Werror", "-fsyntax-only", f"-DCASE={number}", source],
                          capture_output=True, text=True)


scratch = tempfile.TemporaryDirectory()
included = precompile(scratch.name)
cases = re.findall(r"CASE == (\d+)\s+// (message|one sentence): (.*)", open(source).read())
failures = []
plain = compile_case(0)
if plain.returncode != 0:
    failures.append(f"must compile without a case:\n{plain.stderr}")
for number, kind, message in cases:
    result = compile_case(number)
    if result.returncode == 0:
        failures.append(f"case {number} compiles and must not")
    elif not re.search(message, result.stderr):
        failures.append(f"case {number} fails without '{message}':\n{result.stderr}")
    elif kind == "one sentence" and len(re.findall(r"error: ", result.stderr)) != 1:
        failures.append(f"case {number} has more than one error:\n{result.stderr}")
print(f"{len(cases)} cases, {len(failures)} failures", *failures, sep="\n")
sys.exit(1 if failures or not cases else 0)
