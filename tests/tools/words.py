# SPDX-License-Identifier: Apache-2.0
"""Checks that docs/design.md lists exactly the words in the statistics of all resources."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
words = {}  # each with the structures that have it
for header in sorted((root / "pmr/include/tidemark").rglob("*.hpp")):
    for name, body in re.findall(r"^struct (\w+_stats)(?: : [\w:]+)? \{\n(.*?)^\};", header.read_text(), re.M | re.S):
        fields = re.findall(r"^  [\w:<>]+(?: const\*)? (\w+)(?: = [^;]*)?;", body, re.M)
        for word in fields:
            words.setdefault(word, []).append(name)
        if not fields:
            sys.exit(f"{header}: no fields found in {name}")

section = (root / "docs/design.md").read_text().split("## Names of statistics\n")[1].split("\n## ")[0]
rows = re.findall(r"^\| (.*) \| (.*) \|$", section, re.M)
listed = set(re.findall(r"`(\w+)`", str(rows)))
headed = set(re.findall(r"`(\w+)`", str([head for head, _ in rows])))
failures = [f"{word} of {', '.join(names)}: not listed" for word, names in words.items() if word not in listed]
failures += [f"{word}: listed, and no statistics have it" for word in sorted(headed - set(words))]
print(f"{len(words)} words, {len(failures)} failures", *failures, sep="\n")
sys.exit(1 if failures else 0)
