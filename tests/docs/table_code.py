# SPDX-License-Identifier: Apache-2.0
"""The code in tables of a page is compiled: table_code.py PAGE SOURCE...

For each row of a table whose header has `tidemark` as its second cell, one line of a source has all code of
the second and third cell, where `…` stands for anything. A member that the class of its row lacks can
therefore not be in the source.
"""
import pathlib
import re
import sys

OUTSIDE = re.compile(r"^(tidemark-|using$|destroy$)")  # names in a row that are not of the C++ library


def failures(page, sources):
    lines = [line for source in sources for line in source.splitlines()]
    found, looked, inside = [], 0, False
    for row in page.splitlines():
        cells = [cell.strip() for cell in row.strip("| ").split(" | ")]
        if not row.startswith("|"):
            inside = False
        elif len(cells) > 1 and cells[1] == "tidemark":
            inside = True
        elif inside:
            code = [span for span in re.findall(r"`([^`]+)`", " ".join(cells[1:])) if not OUTSIDE.match(span)]
            looked += len(code)
            wanted = [re.compile(r"(?<!\w)" + r".*".join(map(re.escape, span.rstrip(";").split("…")))) for span in code]
            if not any(all(each.search(line) for each in wanted) for line in lines):
                found.append(f"no line of a source has {' and '.join(code)}")
    return found if looked else ["no table has code: this looks at nothing"]


def expect(got, wanted):
    if got != wanted:
        sys.exit("\n".join(["is:", *got, "should be:", *wanted]))


if sys.argv[1] == "finds_code_that_is_not_compiled":
    table = "| x | tidemark | y |\n|---|---|---|\n| `a` | `pool p;` with `size` | |\n| `b` | `p.f(…)` | |\n"
    expect(failures(table, ["pool p{.size = 1};\np.f(3);"]), [])
    expect(failures(table, ["pool p;\nother.size;\np.g(3);"]),
           ["no line of a source has pool p; and size", "no line of a source has p.f(…)"])
    expect(failures("| x | y |\n", []), ["no table has code: this looks at nothing"])
else:
    expect(failures(*[pathlib.Path(sys.argv[1]).read_text(), [pathlib.Path(name).read_text() for name in sys.argv[2:]]]), [])
