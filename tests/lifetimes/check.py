# SPDX-License-Identifier: Apache-2.0
"""Checks which tool finds each late use of late_uses.cpp: the columns of the table in docs/lifetimes.md.

usage: check.py compiler TABLE SOURCE COMPILE-COMMAND...   the columns of clang, by default and by its analysis
       check.py run TABLE SOURCE PROGRAM                   the column of AddressSanitizer, by all cases
       check.py trap TABLE SOURCE PROGRAM                  the column of arenas that trap every scope
`--write` after the first word writes the column instead.
"""
import functools
import pathlib
import re
import subprocess
import sys

arguments = [argument for argument in sys.argv[1:] if argument != "--write"]
writes = "--write" in sys.argv
how, table, source, *command = arguments
ANALYSIS = ["-Wexperimental-lifetime-safety", "-Xclang", "-fexperimental-lifetime-safety"]
DEFAULT_WARNINGS = r"-W(dangling|return-stack-address)[\w-]*\]"
cases = [(int(number), kind, form) for number, kind, form in
         re.findall(r"^#if IS_CASE\((\d+)\)  // (.+) \| (.+)$", pathlib.Path(source).read_text(), re.M)]
if [number for number, *_ in cases] != list(range(1, len(cases) + 1)):
    sys.exit("the cases are not numbered from 1 on")


@functools.cache
def warnings(*options):
    """Returns the warnings of all cases, compiled together: number of the case that contains the line -> text."""
    done = subprocess.run([*command, *options, "-fsyntax-only", source], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"the cases do not compile:\n{done.stderr}")
    case_at = [0]  # by line
    for line in pathlib.Path(source).read_text().splitlines():
        begun = re.match(r"#if IS_CASE\((\d+)\)  // .+ \| ", line)
        case_at.append(int(begun[1]) if begun else case_at[-1])
    found = {}
    for line, text in re.findall(rf"^{re.escape(source)}:(\d+):\d+: warning: (.*)$", done.stderr, re.M):
        number = case_at[int(line)]
        found[number] = found.get(number, "") + text + "\n"
    return found


def warned(number, pattern, *options):
    return "found" if re.search(pattern, warnings(*options).get(number, "")) else ""


def found_at_run_time(number):
    done = subprocess.run([*command, str(number)], capture_output=True, text=True)
    kind = re.search(r"ERROR: AddressSanitizer: (\S+)", done.stderr)
    return kind[1] if done.returncode != 0 and kind else ""


def trapped(number):
    done = subprocess.run([*command, str(number)], capture_output=True, text=True)
    return "found" if done.returncode != 0 and "after it was rewound over, at " in done.stderr else ""


# Columns of a row: type, form, and the findings of these tools.
COLUMNS = {"compiler": {2: lambda number: warned(number, DEFAULT_WARNINGS, "-Wno-unused-function"),
                        3: lambda number: warned(number, r"-Wexperimental-lifetime-safety[\w-]*\]", *ANALYSIS)},
           "run": {4: found_at_run_time}, "trap": {5: trapped}}[how]

text = pathlib.Path(table).read_text()
rows = {}
for line in re.findall(r"^\| \d+ \|.*\|$", text, re.M):
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    rows[int(cells[0])] = cells[1:]
failures = []
for number, kind, form in cases:
    row = rows.setdefault(number, [""] * 6)
    is_now = list(row)
    is_now[:2] = [f"`{kind}`", form]
    for column, find in COLUMNS.items():
        is_now[column] = find(number)
    if is_now != row:
        failures.append(f"case {number}: the table says {row}, and it is {is_now}")
    if not any(is_now[2:]):
        failures.append(f"case {number}, {kind}, {form}: found by nothing")
    rows[number] = is_now
failures += [f"the table has a case {number}, which there is not" for number in rows if number > len(cases)]
if writes:
    lines = "".join(f"| {number} | {' | '.join(rows[number])} |\n" for number, *_ in cases)
    head = "|---|---|---|---|---|---|---|\n"
    before, behind = text.split(head)
    pathlib.Path(table).write_text(before + head + lines + re.sub(r"\A(\|.*\n)*", "", behind))
else:
    print(f"{len(cases)} cases, {len(failures)} failures", *failures, sep="\n")
    sys.exit(1 if failures or not cases else 0)
