# SPDX-License-Identifier: Apache-2.0
"""Copies the C++ blocks in doc comments of headers into sources that supply the omitted code of the
program.

    header_code.py fill ROOT IN OUT   IN with the blocks at its lines `// block HEADER`, to be compiled
    header_code.py check ROOT IN...   each block of each header is in one of IN

HEADER is the path that a program includes, without `tidemark/`; a header's blocks come in their order. The
line `// block HEADER: TEXT => CODE | TEXT => CODE` replaces text that no compiler reads; a text that is not
in the block is an error. `kernel<<<…>>>(x)` becomes a call. Compilers report the place in the header.
"""
import pathlib
import re
import sys

LINE = re.compile(r"^ *// block ([\w/.]+)(?:: (.*))?$", re.M)


def blocks_of(path):
    """Returns (number of the first line, text) of each block of C++ in comments."""
    found, inside, language, first, lines = [], False, "", 0, []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fence = re.match(r" *///? ?```(\w*)$", line)
        if not fence and re.match(r" *//.*```", line):
            sys.exit(f"{path}:{number}: a fence that this cannot read: {line}")
        if fence and not inside:
            inside, language, first, lines = True, fence[1], number + 1, []
            if not language:
                sys.exit(f"{path}:{number}: a block that does not say its language")
        elif fence:
            if fence[1]:
                sys.exit(f"{path}:{number}: a block that has no end")
            inside = False
            if language == "cpp":
                found.append((first, "".join(each + "\n" for each in lines)))
        elif inside:
            comment = re.match(r" *///? ?(.*)$", line)
            if not comment:
                sys.exit(f"{path}:{number}: a block that has no end")
            lines.append(comment[1])
    if inside:
        sys.exit(f"{path}: a block that has no end")
    return found


def headers_of(root):
    """Returns the path of each public header, by the path that a program includes."""
    found = {}
    for pattern in ("include/tidemark", "*/include/tidemark", "adapters/*/include/tidemark"):
        for folder in root.glob(pattern):
            found |= {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*.hpp"))}
    return found


def fill(root, source, out):
    root, headers, taken = pathlib.Path(root), headers_of(pathlib.Path(root)), {}
    filled, name = [], pathlib.Path(source)
    for number, line in enumerate(name.read_text().splitlines(), 1):
        mark = LINE.match(line)
        if not mark:
            filled.append(line)
            continue
        header, replacements = mark.groups()
        if header not in headers:
            sys.exit(f"{source}:{number}: there is no header {header}")
        blocks, index = blocks_of(headers[header]), taken.setdefault(header, 0)
        if index >= len(blocks):
            sys.exit(f"{source}:{number}: {header} has {len(blocks)} blocks")
        taken[header] += 1
        first, text = blocks[index]
        for replacement in replacements.split(" | ") if replacements else []:
            old, new = replacement.split(" =>")
            if old not in text:
                sys.exit(f"{source}:{number}: the block at {headers[header]}:{first} does not have {old}")
            text = text.replace(old, new.strip())
        text = re.sub(r"(\w+)<<<[^>]*>>>", r"\1", text)
        filled += [f'#line {first} "{headers[header].relative_to(root)}"', text.rstrip("\n"), f'#line {number + 1} "{name.name}"']
    text, out = "\n".join(filled) + "\n", pathlib.Path(out)
    if not out.exists() or out.read_text() != text:  # what has not changed is not compiled again
        out.write_text(text)


def check(root, *sources):
    root = pathlib.Path(root)
    there = {header: len(blocks_of(path)) for header, path in headers_of(root).items()}
    taken = [mark[1] for source in sources for mark in LINE.finditer(pathlib.Path(source).read_text())]
    failures = [f"tidemark/{header} has {n} blocks of C++, and {taken.count(header)} are compiled"
                for header, n in there.items() if taken.count(header) != n]
    failures += [f"there is no header {header}" for header in sorted(set(taken) - set(there))]
    if not taken:
        failures.append("no block is compiled: this looks at nothing")
    print(*failures or [f"{len(taken)} blocks of {len(set(taken))} headers are compiled"], sep="\n")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    how, *arguments = sys.argv[1:]
    {"fill": fill, "check": check}[how](*arguments)
