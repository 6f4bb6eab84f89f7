# SPDX-License-Identifier: Apache-2.0
"""Tests of the program and of the page that shows it: test_containers.py PROGRAM SOURCE PAGE CASE.

A sample whose name ends with _fixed is the sample before it on the arena.
"""
import re
import subprocess
import sys
import textwrap

program, source, page, case = sys.argv[1:]
output = subprocess.run([program], capture_output=True, text=True, check=True).stdout
reports = dict(re.findall(r"^(\w+)\n(expect_resource .*?\n)\n", output, re.M | re.S))
code = open(source).read()
samples = re.findall(r"^void (\w+)\(", code, re.M)


def without_addresses(text):
    """Replaces addresses, because each compiler places functions differently."""
    return re.sub(r"\(\+0x[0-9a-f]+\)", "(+0x)", text)


def only_fixed_samples_use_the_arena():
    failures = [f"{name}: {report}" for name, report in reports.items()
                if ("no block came from elsewhere" in report) != name.endswith("_fixed")]
    return failures + [f"there is no report of {name}" for name in samples if name not in reports]


def page_shows_each_sample_and_a_report():
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", open(page).read(), re.M | re.S)
    shown_code = [block for language, block in blocks if language == "cpp"]
    shown_reports = [without_addresses(block) for language, block in blocks if language == ""]
    printed = [without_addresses(report) for report in reports.values()]
    failures = [f"containers.cpp does not have this code of the page:\n{block}" for block in shown_code
                if block not in code and textwrap.indent(block, "  ") not in code]
    failures += [f"no sample has this report of the page:\n{report}" for report in shown_reports if report not in printed]
    failures += [f"the page does not show {name}" for name in samples if f"void {name}(" not in "".join(shown_code)]
    return failures + ([] if shown_reports else ["the page shows no report"])


failures = globals()[case]()
print("\n".join(failures) if failures or not samples else f"{len(samples)} samples, no failures")
sys.exit(1 if failures or not samples else 0)
