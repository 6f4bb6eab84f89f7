# SPDX-License-Identifier: Apache-2.0
"""Writes docs/coverage.md from the tags in the tests, and checks it.

A tag is a line of comment above a test. It names the lines of the page that the test covers: `// S0.1
P.12`. The text of the page is tests/tools/coverage.in.md. Each row has a line, its text, and the tests
outside of GoogleTest, or a sentence that explains why it has none. The tagged tests of a line come before
those, in the order of the files. A line names at most MAX_TESTS tests, the ones that show its behaviour best.

    coverage.py          writes the page
    coverage.py BUILD    fails if the page is not up to date, if a tag names no line, if a line has no test,
                         or more than MAX_TESTS, or if ctest in BUILD does not know a test that the
                         page or docs/proofs.md names

A name `suite.test` matches these tests: a test that ctest knows by this name, a typed test,
`instance/suite.test<...>`, or a test with a parameter, `instance/suite.test/parameter`, to which GoogleTest
adds `# GetParam() = ...` if the parameter has no name. Tests of Thrust's systems have one more name in front,
`thrust_cpp_3000001_suite.test`.
"""
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/coverage.md"
TEXT = ROOT / "tests/tools/coverage.in.md"
FOLDERS = ["tests", "planner", "adapters", "examples", "bench"]

# The parts that are delivered, and how many lines each has. A part that is listed is whole.
LINES = {"S0": 36, "S1": 38, "S2": 30, "S3": 37, "S4": 78, "G": 16, "H": 17, "R": 13, "L": 15, "N": 8, "T": 22, "A": 18, "P": 42, "E": 9, "D": 21}
MAX_TESTS = 3
TAGS = r"[A-Z]\d?\.\d+(?: [A-Z]\d?\.\d+)*"
TAGGED_TEST = rf"^// ({TAGS})\n(?://.*\n)*(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)"
ROW = r"\| (\w+\.\d+) \| ([^|]+) \| ([^|]*)\|"


def tagged():
    """Returns the tests of each line that a tag names, in the order of files."""
    found = {}
    for path in sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*") if p.suffix in (".cpp", ".cu", ".hpp")):
        for tags, suite, test in re.findall(TAGGED_TEST, path.read_text(), re.M):
            for line in tags.split():
                found.setdefault(line, []).append(f"`{suite}.{test}`")
    return found


def page(tests):
    """Returns the page, made of its text and of `tests`, which are tagged."""
    def row(match):
        return f"| {match[1]} | {match[2]} | {' '.join([*tests.get(match[1], []), match[3].strip()]).strip()} |"
    return "\n".join(re.sub(f"^{ROW}$", row, line) for line in TEXT.read_text().split("\n"))


def tests_of(program):
    """Returns the names suite.test that a program of GoogleTest lists."""
    names, suite = [], ""
    for line in subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout.splitlines():
        if line.startswith("  "):
            names.append(suite + line.strip())
        else:
            suite = line.split("  #")[0]
    return names


def known_tests(build_dir):
    """Returns the names by which the page may call the tests that ctest knows: alone, or as a suite of a program."""
    listed = json.loads(subprocess.run(["ctest", "--test-dir", build_dir, "--show-only=json-v1"],
                                       capture_output=True, text=True, check=True).stdout)
    names = [test["name"] for test in listed["tests"]]
    programs = {test["command"][0] for test in listed["tests"] if test["name"].endswith(".*")}
    programs |= {word for test in listed["tests"] for word in test["command"] if "/tidemark_mpi_tests" in word}  # behind mpiexec
    for program in programs:
        names += tests_of(program)
    known = set()
    for name in names:
        name = re.sub(r"^(thrust_[a-z]+_[0-9]+|mpich|openmpi)_", "", name)
        known.add(name)
        # Prefix/suite.test, suite/0.test, suite/type.test: either part may be the suite.
        if typed := re.fullmatch(r"(\w+(?:/\w+)*)\.(\w+)(?:/\w+)?", re.split("[<#]", name)[0].strip()):
            known |= {f"{part}.{typed[2]}" for part in typed[1].split("/")}
    return known


def failures_of(tests, text, known):
    """Returns the faults of the page `text`, each as one line."""
    rows = re.findall(f"^{ROW}$", text, re.M)
    seen = [line for line, _, _ in rows]
    failures = [f"not a row of three cells: {row}" for row in re.findall(r"^ *\|? *[A-Z]\d?\.\d.*$", text, re.M)
                if not re.fullmatch(ROW, row)]
    failures += [f"{line}: a tag of {' '.join(names)}, but not a line of the page" for line, names in tests.items() if line not in seen]
    for line, _, cell in rows:
        names = re.findall(r"`(\w+\.\w+)`", cell)
        if not names and not cell.strip().endswith("."):
            failures.append(f"{line}: no test has its tag, and no sentence says why")
        if len(names) > MAX_TESTS:
            failures.append(f"{line}: {len(names)} tests; keep the tags of the {MAX_TESTS} that show it best")
        failures += [f"{line}: no such test: {name}" for name in names if name not in known]
    failures += [f"proofs.md: no such test: {name}" for name in re.findall(r"`([a-z]\w+\.\w+)`", (ROOT / "docs/proofs.md").read_text())
                 if name not in known and not name.endswith((".md", ".hpp", ".py"))]
    failures += [f"{part}.{i}: missing" for part, n in LINES.items() for i in range(1, n + 1) if f"{part}.{i}" not in seen]
    failures += [f"{line}: not a line of a part in LINES" for line in seen if line.split(".")[0] not in LINES]
    failures += [f"{line}: twice" for line in sorted(set(seen)) if seen.count(line) > 1]
    if text != PAGE.read_text():
        failures.append("docs/coverage.md is not up to date: run tests/tools/coverage.py")
    return failures


def main():
    tests = tagged()
    text = page(tests)
    if len(sys.argv) == 1:
        PAGE.write_text(text)
        return 0
    known = known_tests(sys.argv[1])
    failures = failures_of(tests, text, known)
    print(f"{text.count(chr(10))} lines of text, {len(known)} tests, {len(failures)} failures", *failures, sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
