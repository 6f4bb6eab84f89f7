# SPDX-License-Identifier: Apache-2.0
"""Checks that docs/planner.md and the search name each other: planner_page.py SOURCES CASE.

On the page "`function` in `file`" names a function, a class or both; in a file `docs/planner.md, "Section"` names a section.
"""
import pathlib
import re
import sys


def faults(page, files):
    """@param files the search's texts by name"""
    found = []
    sections = set(re.findall(r"^#{2,3} (.+)$", page, re.M))
    for names, file in re.findall(r"((?:`[\w:]+`(?:, | and )?)+) in\s+`(\w+\.[ch]pp)`", page):
        for name in re.findall(r"`([\w:]+)`", names):
            words = name.split("::")
            if not all(re.search(rf"\b{word}\b", files.get(file, "")) for word in words):
                found.append(f"the page names {name} in {file}, which is not there")
    found += [f"the page names {file}, which is not there" for file in set(re.findall(r"`(\w+\.[ch]pp)`", page)) - set(files)]
    for file, text in files.items():
        named = re.findall(r'docs/planner\.md, "([^"]+)"', text)
        if not named:
            found.append(f"{file} names no section of the page")
        found += [f"{file} names the section {name}, which is not there" for name in named if name not in sections]
        if file not in page:
            found.append(f"the page does not name {file}")
    return sorted(found)


def expect(got, wanted):
    if got != wanted:
        sys.exit(f"is:        {got!r}\nshould be: {wanted!r}")


def main(sources, case):
    page, file = "## Cuts\n`cut` in `a.cpp`.\n", '// docs/planner.md, "Cuts".\nvoid cut();\n'
    if case == "and_the_search_name_each_other":
        root = pathlib.Path(sources)
        search = root / "search/src"
        files = {path.name: path.read_text() for path in search.iterdir()}
        expect(len(files) > 10, True)
        expect(faults((root / "docs/planner.md").read_text(), files), [])
    elif case == "finds_a_function_that_is_not_there":
        expect(faults(page, {"a.cpp": file}), [])
        expect(faults(page.replace("`cut`", "`cut_off`"), {"a.cpp": file}), ["the page names cut_off in a.cpp, which is not there"])
        expect(faults(page.replace("`cut`", "`cut`, `x::y`"), {"a.cpp": file}), ["the page names x::y in a.cpp, which is not there"])
    elif case == "finds_a_file_that_is_not_there":
        expect(faults(page + "`b.cpp`", {"a.cpp": file}), ["the page names b.cpp, which is not there"])
    elif case == "finds_a_file_without_a_section":
        expect(faults(page, {"a.cpp": "void cut();"}), ["a.cpp names no section of the page"])
        expect(faults(page.replace("Cuts", "Cut"), {"a.cpp": file}), ["a.cpp names the section Cuts, which is not there"])
    elif case == "finds_a_file_that_the_page_leaves_out":
        expect(faults(page, {"a.cpp": file, "b.hpp": file}), ["the page does not name b.hpp"])
    else:
        sys.exit(f"there is no case {case}")


if __name__ == "__main__":
    main(*sys.argv[1:])
