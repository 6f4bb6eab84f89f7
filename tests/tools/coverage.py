# SPDX-License-Identifier: Apache-2.0
"""Every test that docs/coverage.md and docs/proofs.md name exists, and no line of the former's table is without one.

A name `suite.test` is met by a test that ctest knows as such, by a typed one, `instance/suite.test<...>`, or by one with a
parameter, `instance/suite.test/parameter`, to which GoogleTest adds `# GetParam() = ...` where it has no name for it. Tests of
Thrust's systems have one more name in front, `thrust_cpp_3000001_suite.test`.
"""
import json
import pathlib
import re
import subprocess
import sys

coverage, build_dir = sys.argv[1:]

# The parts that are delivered, and how many lines each has. A part that is listed is whole.
LINES = {"S0": 36, "S1": 38, "S2": 30, "S3": 37, "S4": 78, "G": 16, "H": 17, "R": 13, "L": 15, "N": 8, "T": 22, "A": 18, "P": 42, "V": 7, "B": 14,
         "E": 9, "K": 11, "D": 20}

listed = json.loads(subprocess.run(["ctest", "--test-dir", build_dir, "--show-only=json-v1"],
                                   capture_output=True, text=True, check=True).stdout)
known = set()
for test in listed["tests"]:
    name = re.sub(r"^(thrust_[a-z]+_[0-9]+|mpich|openmpi)_", "", test["name"])
    known.add(name)
    # Prefix/suite.test, suite/0.test, suite/type.test: either part may be the suite.
    if typed := re.fullmatch(r"(\w+(?:/\w+)*)\.(\w+)(?:/\w+)?", re.split("[<#]", name)[0].strip()):
        known |= {f"{part}.{typed[2]}" for part in typed[1].split("/")}

text = pathlib.Path(coverage).read_text()
rows = re.findall(r"^\| (\w+\.\d+) \| ([^|]+) \| ([^|]+) \|$", text, re.M)
failures = [f"not a row of three cells: {row}" for row in re.findall(r"^ *\|? *[A-Z]\d?\.\d.*$", text, re.M)
            if not re.fullmatch(r"\| \w+\.\d+ \| [^|]+ \| [^|]+ \|", row)]
for line, _, tests in rows:
    names = re.findall(r"`(\w+\.\w+)`", tests)
    if not names and not tests.strip().endswith("."):
        failures.append(f"{line}: names no test and gives no sentence why")
    failures += [f"{line}: no such test: {name}" for name in names if name not in known]
proofs = (pathlib.Path(coverage).parent / "proofs.md").read_text()
failures += [f"proofs.md: no such test: {name}" for name in re.findall(r"`([a-z]\w+\.\w+)`", proofs)
             if name not in known and not name.endswith((".md", ".hpp", ".py"))]
seen = [line for line, _, _ in rows]
failures += [f"{part}.{i}: missing" for part, n in LINES.items() for i in range(1, n + 1) if f"{part}.{i}" not in seen]
failures += [f"{line}: not a line of a part in LINES" for line in seen if line.split(".")[0] not in LINES]
failures += [f"{line}: twice" for line in sorted(set(seen)) if seen.count(line) > 1]
print(f"{len(rows)} lines, {len(known)} tests, {len(failures)} failures", *failures, sep="\n")
sys.exit(1 if failures or not rows else 0)
