# SPDX-License-Identifier: Apache-2.0
"""docs/design.md lists every word of every resource's statistics, and no other."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
words = {}  # each with the headers that have it
for header in sorted((root / "pmr/include/tidemark").glob("*_stats.hpp")):
    fields = re.findall(r"^  [\w:<>]+(?: const\*)? (\w+)(?: = [^;]*)?;", header.read_text(), re.M)
    for word in fields:
        words.setdefault(word, []).append(header.name)
    if not fields:
        sys.exit(f"{header}: no fields found")

section = (root / "docs/design.md").read_text().split("## Words of statistics\n")[1].split("\n## ")[0]
rows = re.findall(r"^\| (.*) \| (.*) \|$", section, re.M)
listed = set(re.findall(r"`(\w+)`", str(rows)))
headed = set(re.findall(r"`(\w+)`", str([head for head, _ in rows])))
failures = [f"{word} of {', '.join(headers)}: not listed" for word, headers in words.items() if word not in listed]
failures += [f"{word}: listed, and no statistics have it" for word in sorted(headed - set(words))]
print(f"{len(words)} words, {len(failures)} failures", *failures, sep="\n")
sys.exit(1 if failures else 0)
