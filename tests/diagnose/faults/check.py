# SPDX-License-Identifier: Apache-2.0
"""Checks the report of each finder for each mistake in faults.cpp against the table in docs/finding_faults.md.

usage: check.py FINDER PAGE SOURCE PROGRAM   all rows under one finder; a row that does not name it must have no report
       check.py CASE PAGE SOURCE PROGRAM     how the program reads TIDEMARK_TRAP
"""
import os
import pathlib
import re
import signal
import subprocess
import sys

how, page, source, program = sys.argv[1:]
VARIABLE = "TIDEMARK_TRAP"
FINDERS = ["check level 1", "check level 2", "AddressSanitizer", "traps", "tracking_resource", "expect_resource"]
REPORT = r"^(?:tidemark: |exception: |=+\d+=+ERROR: AddressSanitizer: )(.*)$"
failures = []


def run(*arguments, **settings):
    environment = {name: text for name, text in os.environ.items() if name != VARIABLE} | settings
    return subprocess.run([program, *arguments], capture_output=True, text=True, errors="replace", env=environment)


def rows():
    """Returns the mistake of each row and the message of each finder, in which `…` stands for anything."""
    found = []
    for mistake, finders, messages in re.findall(r"^\| ([^|]+) \| ([^|]+) \| (`[^|]+) \|$", pathlib.Path(page).read_text(), re.M):
        finders, messages = finders.split("<br>"), messages.split("<br>")
        if len(finders) != len(messages):
            failures.append(f"'{mistake}' has {len(finders)} lines of finders and {len(messages)} messages")
        message_of = {finder.strip("`"): message.strip("`") for names, message in zip(finders, messages)
                      for finder in names.split(", ")}
        failures.extend(f"'{mistake}' names '{finder}', which is no finder" for finder in message_of if finder not in FINDERS)
        found.append((mistake, message_of))
    return found


def check_table():
    cases = re.findall(r'^FAULT\((\d+), "(.+)"\)', pathlib.Path(source).read_text(), re.M)
    table = rows()
    if [text for _, text in cases] != [mistake for mistake, _ in table]:
        failures.append(f"the cases are {cases}, and the rows {[mistake for mistake, _ in table]}")
    if not any(how in message_of for _, message_of in table):
        failures.append(f"no row names {how}")
    for (number, _), (mistake, message_of) in zip(cases, table):
        done = run(number, how, **({VARIABLE: "1"} if how == "traps" else {}))
        if done.returncode == 2:
            failures.append(f"'{mistake}': the program has no such case")
        if mistake == "a scope is used after its end" and how == "check level 1" and done.returncode != -signal.SIGSEGV:
            failures.append(f"'{mistake}' ends with {done.returncode} at level 1")  # docs/reference/messages.md
        # Every build has the checks of level 1.
        message = message_of.get(how, message_of.get("check level 1"))
        reports = re.findall(REPORT, done.stderr, re.M)
        if message is None and reports:
            failures.append(f"'{mistake}' is reported, and the row does not say so: {reports[0]}")
        if message is not None:
            wanted = ".*".join(map(re.escape, message.split("…")))
            if not any(re.match(wanted, report) for report in reports):
                failures.append(f"'{mistake}': the row says '{message}', and the reports are {reports}")
    return len(table)


def counted(text):
    """Returns warnings and the numbers of trapped scopes: of an arena, a later one, and one with a rate of 2^32 - 1 in the code."""
    lines = run("0", **({} if text is None else {VARIABLE: text})).stdout.splitlines()
    return lines[:-3], [int(line) for line in lines[-3:]]


def expect_rate(text, warnings, least, most):
    said, numbers = counted(text)
    if said != warnings or not all(least <= number <= most for number in numbers):
        failures.append(f"{VARIABLE}={text}: warnings {said}, trapped {numbers}")


if how == "the_environment_sets_the_rate_once":
    for text in None, "", "0", "4294967295":
        expect_rate(text, [], 0, 1)
    expect_rate("1", [], 2_000, 2_000)  # also of the arena that has a rate in the code
    expect_rate("01", [], 2_000, 2_000)
    expect_rate("100", [], 5, 60)
elif how == "the_environment_is_warned_of_once_and_ignored_if_wrong":
    for text in "x", "-1", "+1", " 1", "1 ", "1x", "0x1", "1.0", "4294967296", "99999999999999999999":
        expect_rate(text, [f"{VARIABLE}: {VARIABLE} is '{text}', which is not a number from 0 to 4294967295; it is ignored"], 0, 0)
elif how == "a_wrong_value_is_printed_without_a_handler":
    printed = run("1", "check level 1", **{VARIABLE: "on"}).stderr
    if printed != f"tidemark: {VARIABLE} is 'on', which is not a number from 0 to 4294967295; it is ignored\n":
        failures.append(f"{VARIABLE}=on prints {printed}")
elif how in FINDERS:
    if check_table() != 20:
        failures.append("the table does not have twenty rows")
else:
    sys.exit(f"there is no case {how}")
sys.exit("\n".join(failures) or 0)
