# SPDX-License-Identifier: Apache-2.0
"""Every test that docs/coverage.md names exists, and no line of the table is without one.

A name `suite.test` is met by a test that ctest knows as such, or by a typed one, `instance/suite.test<...>`.
"""
import json
import pathlib
import re
import subprocess
import sys

coverage, build_dir = sys.argv[1:]
listed = json.loads(subprocess.run(["ctest", "--test-dir", build_dir, "--show-only=json-v1"],
                                   capture_output=True, text=True, check=True).stdout)
known = set()
for test in listed["tests"]:
    name = test["name"]
    known.add(name)
    if typed := re.fullmatch(r"\w+/(\w+)(?:/\d+)?\.(\w+)", name.split("<")[0].strip()):
        known.add(f"{typed[1]}.{typed[2]}")

rows = re.findall(r"^\| (S\d\.\d+) \| ([^|]+) \| ([^|]+) \|$", pathlib.Path(coverage).read_text(), re.M)
failures = []
for line, _, tests in rows:
    names = re.findall(r"`(\w+\.\w+)`", tests)
    if not names and not tests.strip().endswith("."):
        failures.append(f"{line}: names no test and gives no sentence why")
    failures += [f"{line}: no such test: {name}" for name in names if name not in known]
seen = [line for line, _, _ in rows]
failures += [f"{line}: twice" for line in sorted(set(seen)) if seen.count(line) > 1]
print(f"{len(rows)} lines, {len(known)} tests, {len(failures)} failures", *failures, sep="\n")
sys.exit(1 if failures or not rows else 0)
