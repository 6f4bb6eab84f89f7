# SPDX-License-Identifier: Apache-2.0
"""Each row of a page has a test: rows_of_page.py PAGE SOURCE... or rows_of_page.py finds_rows_and_code_that_no_test_has

Checks the tables with `tidemark` in the second cell of the header. The test of a row has the comment `// | LEFT CELL |` above
it, and contains all code of the second and third cell. Rows can share a test. `…` matches any text.
"""
import pathlib
import re
import sys

OUTSIDE = re.compile(r"^(tidemark-|using$|destroy$|--)")  # names in a row that are not of the C++ library


def failures(page, sources):
    tests, found, inside, rows = {}, [], False, 0
    for source in sources:
        for cells, test in re.findall(r"((?:^ *// \| [^\n]* \|\n)+)(.*?)(?=^ *// \| |\Z)", source, re.M | re.S):
            for cell in re.findall(r"// \| (.*) \|\n", cells):
                tests.setdefault(cell, []).append(test)
    for row in page.splitlines():
        left, *right = [cell.strip() for cell in row.strip("| ").split(" | ")]
        if not row.startswith("|"):
            inside = False
        elif right and right[0] == "tidemark":
            inside = True
        elif inside and not re.fullmatch("-*", left.strip("|-")):
            rows += 1
            if not tests.get(left):
                found.append(f"no test has the row {left}")
                continue
            test = tests[left].pop(0)
            code = [span for span in re.findall(r"`([^`]+)`", " ".join(right)) if not OUTSIDE.match(span)]
            found += [f"the test of the row {left} lacks {span}" for span in code
                      if not re.search(r"(?<!\w)" + ".*".join(map(re.escape, span.rstrip(";").split("…"))), test)]
    found += [f"the page has no row {left}" for left, left_over in tests.items() if left_over]
    return found if rows else ["no table: this looks at nothing"]


def expect(got, wanted):
    if got != wanted:
        sys.exit("\n".join(["is:", *got, "should be:", *wanted]))


if sys.argv[1] == "finds_rows_and_code_that_no_test_has":
    table = "| x | tidemark | y |\n|---|---|---|\n| `a` | `pool p;` with `size` | |\n| `b` | `p.f(…)` | |\n"
    expect(failures(table, ["// | `a` |\npool p{.size = 1};\npool p;\n", "// | `b` |\np.f(3);\n"]), [])
    expect(failures(table, ["// | `a` |\n// | `b` |\npool p{.size = 1};\npool p;\np.f(3);\n"]), [])
    expect(failures(table, ["// | `a` |\npool p;\n// | `c` |\np.f(3);\n"]),
           ["the test of the row `a` lacks size", "no test has the row `b`", "the page has no row `c`"])
    expect(failures("| x | y |\n", []), ["no table: this looks at nothing"])
else:
    page, *sources = [pathlib.Path(name).read_text() for name in sys.argv[1:]]
    expect(failures(page, sources), [])
