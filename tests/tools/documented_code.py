# SPDX-License-Identifier: Apache-2.0
"""Fails unless each C++ block of a page is in a source, word for word, and each test of a fault of Thrust exists by name:
documented_code.py PAGE SOURCE... A block may be indented further in a source."""
import re
import sys
import textwrap

page, *sources = sys.argv[1:]
text = open(page).read()
code = [open(source).read() for source in sources]
blocks = [block for language, block in re.findall(r'^```(\w*)(?: title="[^"]*")?\n(.*?)^```$', text, re.M | re.S) if language == "cpp"]
named = set(re.findall(r"`(thrust_faults\w*\.\w+)`", text))
failures = []
for block in blocks:
    shifted = ["\n" + textwrap.indent(block, indent * " ") for indent in range(0, 9, 2)]
    if not any(lines in "\n" + source for lines in shifted for source in code):
        failures.append(f"no source has this code of {page}:\n{block}")
defined = {f"{suite}.{name}" for source in code
           for suite, name in re.findall(r"^TEST(?:_F)?\((thrust_faults\w*),\s*(\w+)\)", source, re.M)}
failures += [f"there is no test {name}, which {page} names" for name in sorted(named - defined)]
failures += [f"{page} does not name the test {name}" for name in sorted(defined - named)]
if not blocks or defined and not named:
    failures.append(f"{page} has {len(blocks)} blocks of C++ and names {len(named)} tests: this looks at nothing")
print("\n".join(failures) if failures else f"{len(blocks)} blocks of C++ and {len(named)} tests that {page} names are there")
sys.exit(1 if failures else 0)
