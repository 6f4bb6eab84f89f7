# SPDX-License-Identifier: Apache-2.0
"""Checks that headers and sources include only headers that docs/design.md's table of parts allows, without
cycles, that umbrella headers include all of their headers, and that files that pages name exist.

The table is the block under "## Parts": `part: parts it may include`. A part is a folder; `plan/replay` is a
separate part within `plan`. A file outside of all parts is an error, so that a new folder must be placed.
"""
import pathlib
import posixpath
import re
import sys

root = pathlib.Path(sys.argv[1])
section = (root / "docs/design.md").read_text().split("## Parts\n")[1].split("\n## ")[0]
allowed = {part: set(others.split()) for part, others in
           re.findall(r"^([\w/]+):((?: +[\w/]+)*) *$", section.split("```")[1], re.M)}
failures = [f"docs/design.md: {part} may include {other}, which is no part" for part, others in allowed.items()
            for other in others - allowed.keys()]


def part_of(path):
    """Returns the part of a path below include/tidemark or src, or None."""
    return next((part for part in sorted(allowed, key=len, reverse=True) if path.startswith(part + "/")), None)


headers, sources = {}, {}
for folder in ("pmr", "thrust_adapters", "adapters/mpi", "adapters/numpy", "adapters/torch"):
    base = root / folder / "include/tidemark"
    headers |= {path.relative_to(base).as_posix(): path for path in base.rglob("*.hpp*")}
    base = root / folder / "src"
    sources |= {path.relative_to(base).as_posix(): path for path in base.rglob("*.?pp")}
# The planner is a separate package on top, which sees only the installed headers. Its tool, C library, tests
# and benchmarks too.
planner = [path for folder in ("search", "tool", "c", "python", "tests", "bench")
           for path in (root / "planner" / folder).rglob("*") if path.suffix in (".hpp", ".cpp", ".cppm", ".h", ".c")]
headers = {name.removesuffix(".in"): path for name, path in headers.items()}  # config.hpp is made of config.hpp.in
umbrellas = {name for name in headers if "/" not in name}

for kind, files in (("header", headers), ("source", sources)):
    for name, path in files.items():
        if kind == "header" and name in umbrellas:
            continue
        part, text = part_of(name), path.read_text()
        if part is None:
            failures.append(f"{path}: in no part; docs/design.md lists them under \"Parts\"")
            continue
        included = re.findall(r"#include <tidemark/([^>]+)>", text)
        for quoted in re.findall(r'#include "([^"]+)"', text):
            included.append(posixpath.normpath(posixpath.join(posixpath.dirname(name), quoted)))
            if kind == "header":
                failures.append(f"{path}: includes with quotes; public headers are found by <tidemark/...>")
        for other in included:
            if other not in headers and other not in sources:
                failures.append(f"{path}: includes {other}, which does not exist")
            elif other in umbrellas:
                failures.append(f"{path}: includes all of a part, {other}; a header that it uses is enough")
            elif part_of(other) not in allowed[part] | {part}:
                failures.append(f"{path}: {part} must not include {other} of {part_of(other)}")

finished = set()


def find_cycles(name, above):
    """Adds a failure for each cycle of headers that leads through `name`."""
    if name in above:
        failures.append("a cycle of headers: " + " -> ".join([*above[above.index(name):], name]))
    elif name not in finished and name in headers:
        for other in re.findall(r"#include <tidemark/([^>]+)>", headers[name].read_text()):
            find_cycles(other, [*above, name])
        finished.add(name)


for name in headers:
    find_cycles(name, [])

# Decisions name files as they were then.
known = [*headers, *sources, *(path.relative_to(root).as_posix() for folder in ("tests", "bench", "examples", "planner", "tools", "pmr",
         "thrust_adapters", "adapters", "scripts") for path in (root / folder).rglob("*.*"))]
for page in sorted({*root.glob("docs/**/*.md"), root / "README.md", root / "CONTRIBUTING.md"} - {*root.glob("docs/decisions/*.md")}):
    for named in re.findall(r"[`<]((?:[\w.]+/)+\w+\.(?:hpp|cpp|cppm))[`>]", page.read_text()):
        named = named.removeprefix("tidemark/")
        if not any(path == named or path.endswith("/" + named) for path in known):
            failures.append(f"{page.relative_to(root)}: names {named}, which does not exist")

# The first defines operator new, which is the program's to decide; the second includes <random>.
NOT_IN_AN_UMBRELLA = {"diagnose/watched_new.hpp", "workspace/extras/random.hpp"}
# tidemark.hpp is the host's parts; any other umbrella is the public headers of the folder of its name.
for umbrella in sorted(umbrellas):
    included = set(re.findall(r"#include <tidemark/([^>]+)>", headers[umbrella].read_text()))
    public = {name for name in headers if name.startswith(umbrella.removesuffix(".hpp") + "/") and "/detail/" not in name}
    if umbrella == "tidemark.hpp":
        public = {name for name in umbrellas - {umbrella} if headers[name].is_relative_to(root / "pmr")}
    failures += [f"{umbrella} does not include {name}" for name in sorted(public - included - NOT_IN_AN_UMBRELLA)]
for path in planner:
    for other in re.findall(r"#include <tidemark/([^>]+)>", path.read_text()):
        if other == "planner.hpp":
            continue
        if other not in headers or other in umbrellas:
            failures.append(f"{path}: includes {other}, which is no header of a part")
        elif "/detail/" in other:
            failures.append(f"{path}: includes {other}, which is a detail of {part_of(other)}")
        elif part_of(other) not in allowed["planner"]:
            failures.append(f"{path}: planner must not include {other} of {part_of(other)}")
    for other in re.findall(r'#include "([^"]+)"', path.read_text()) if path.is_relative_to(root / "planner/search") else ():
        if not (path.parent / other).exists() or "/" in other:
            failures.append(f"{path}: includes {other}, which is not beside it")
print(f"{len(headers)} headers and {len(sources)} sources, {len(failures)} failures", *failures, sep="\n")
sys.exit(1 if failures or len(sources) < 50 or len(planner) < 10 or not umbrellas else 0)
