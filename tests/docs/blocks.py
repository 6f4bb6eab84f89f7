# SPDX-License-Identifier: Apache-2.0
"""Checks the blocks of pages that no test compiles.

    blocks.py look ROOT                          each fence of each page is complete; shell and Python have no syntax error, and YAML is
                                                 valid if Python has a parser; the presets of a page exist, and a preset that a page
                                                 installs has no warnings as errors
    blocks.py compiled ROOT PAGE...              these are the pages with C++ and without programs
    blocks.py configure ROOT WORK COMPILER PREFIX TARGET...
                                                 configures one project of all blocks for CMake; it needs these targets at most
    blocks.py CASE                               one fact on a page of a few lines

programs.py checks the programs of docs/start and docs/guides, documented_code.py other C++.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys

FENCE = re.compile(r'^(\s*)(`{3,}|~{3,})(.*)$')
INFO = re.compile(r'^(\w*)(?: title="[^"]*")?$')
LANGUAGES = {"cpp", "c", "cmake", "console", "python", "sh", "text", "yaml", ""}
PROGRAMS = ("docs/start/", "docs/guides/", "docs/index.md", "README.md")


def pages_of(root):
    return {str(path.relative_to(root)): path.read_text() for path in
            [*sorted((root / "docs").rglob("*.md")), *sorted((root / "planner/docs").rglob("*.md")), root / "README.md", root / "CONTRIBUTING.md"]}


def blocks_of(page, text):
    """Returns (language, text) of each fenced block, and the faults of the fences."""
    blocks, faults, inside, lines = [], [], None, []
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if not fence:
            lines.append(line)
        elif inside is not None:
            if fence[1] or fence[2] != "```" or fence[3]:
                faults.append(f"{page}:{number}: a block ends in {line!r}")
            blocks.append((inside, "\n".join(lines) + "\n"))
            inside = None
        else:
            info = INFO.match(fence[3])
            if fence[1] or fence[2] != "```" or not info or info[1] not in LANGUAGES:
                faults.append(f"{page}:{number}: a block begins with {line!r}")
            inside, lines = (info[1] if info else ""), []
    return blocks, faults + ([f"{page}: a block has no end"] if inside is not None else [])


def presets_of(root):
    presets = {each["name"]: each for each in json.loads((root / "CMakePresets.json").read_text())["configurePresets"]}

    def settings(name):
        parent = presets[name].get("inherits")
        return {**(settings(parent) if parent else {}), **presets[name].get("cacheVariables", {})}
    return {name: settings(name) for name in presets}


def faults_of(page, language, text, presets):
    if language == "sh":
        done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
        if done.returncode != 0:
            yield f"{page}: the shell does not read this:\n{text}{done.stderr}"
        named = set(re.findall(r"--preset (\w[\w-]*)", text)) | set(re.findall(r"cmake --install build/([\w-]+)", text))
        folders = set(re.findall(r"--preset \w[\w-]* -B build/([\w-]+)", text))  # instead of the preset's own
        yield from (f"{page}: there is no preset {name}" for name in sorted(named - folders - set(presets)))
        yield from (f"{page}: preset {name} to install has warnings as errors"
                    for name in re.findall(r"cmake --install build/([\w-]+)", text)
                    if presets.get(name, {}).get("TIDEMARK_WARNINGS_AS_ERRORS") == "ON")
    elif language == "python":
        try:
            compile(text, page, "exec")
        except SyntaxError as error:
            yield f"{page}: Python does not read this:\n{text}{error}"
    elif language == "yaml":
        try:
            import yaml
        except ImportError:
            return
        try:
            list(yaml.safe_load_all(text))
        except yaml.YAMLError as error:
            yield f"{page}: this is no YAML:\n{text}{error}"


def check_blocks(pages, presets):
    faults, looked = [], 0
    for page, text in pages.items():
        blocks, found = blocks_of(page, text)
        faults += found
        looked += len(blocks)
        for language, code in blocks:
            faults += faults_of(page, language, code, presets)
    return faults if looked or faults else ["there is no block: this looks at nothing"]


def compiled(pages, listed):
    there = {page for page, text in pages.items()
             if not page.startswith(PROGRAMS) and any(language == "cpp" for language, _ in blocks_of(page, text)[0])}
    return [f"the C++ of {page} is compared with no source" for page in sorted(there - listed)] + \
           [f"{page} has no C++" for page in sorted(listed - there)]


def configure(pages, work, compiler, prefix, targets):
    shutil.rmtree(work, ignore_errors=True)
    known = set(re.findall(r"tidemark::\w+", pages["docs/reference/targets.md"]))
    top, number = "cmake_minimum_required(VERSION 3.28)\nproject(pages LANGUAGES CXX)\n", 0
    for page, text in pages.items():
        for language, code in blocks_of(page, text)[0]:
            needed = {target for target in re.findall(r"tidemark::\w+", code)}
            if language != "cmake" or "target_link_libraries" not in code:
                continue
            if not needed <= known:
                sys.exit(f"{page}: docs/reference/targets.md does not have {needed - known}")
            if not needed <= targets:
                continue
            folder = work / "source" / str(number)
            folder.mkdir(parents=True)
            (folder / "main.cpp").write_text("int main() {}\n")
            missing = set(re.findall(r"target_link_libraries\((\w+)", code)) - set(re.findall(r"add_(?:executable|library)\((\w+)", code))
            code = "".join(f"add_executable({name} main.cpp)\n" for name in sorted(missing)) + code
            if "find_package" not in code:
                code = "find_package(tidemark CONFIG REQUIRED)\n" + code
            names = set(re.findall(r"add_(?:executable|library)\((\w+)", code))
            for name in names:  # targets of one project have different names
                code = re.sub(rf"(\(){name}\b", rf"\g<1>{name}_{number}", code)
            (folder / "CMakeLists.txt").write_text(f"# {page}\n{code}")
            top += f"add_subdirectory({number})\n"
            number += 1
    (work / "source/CMakeLists.txt").write_text(top)
    done = subprocess.run(["cmake", "-G", "Ninja", "-S", work / "source", "-B", work / "build", f"-DCMAKE_CXX_COMPILER={compiler}",
                           f"-DCMAKE_PREFIX_PATH={prefix}"], capture_output=True, text=True)
    print(f"{number} blocks\n{done.stdout}")
    if done.returncode != 0 or "Warning" in done.stderr or number < 3:
        sys.exit(done.stderr + f"{number} blocks were configured")


def expect(got, wanted):
    if got != wanted:
        sys.exit("\n".join(["is:", *got, "should be:", *wanted]))


def case(name):
    presets = {"release": {"TIDEMARK_WARNINGS_AS_ERRORS": "ON"}, "install": {}}

    def found(text):
        return [fault.splitlines()[0] for fault in check_blocks({"a.md": text}, presets)]
    if name == "finds_a_fence_that_it_cannot_read":
        expect(found("  ```cpp\n  x\n  ```\n"), ["a.md:1: a block begins with '  ```cpp'", "a.md:3: a block ends in '  ```'"])
        expect(found("```cpp hl=1\n```\n"), ["a.md:1: a block begins with '```cpp hl=1'"])
        expect(found('```cpp title="x"\n'), ["a.md: a block has no end"])
        expect(found("text\n"), ["there is no block: this looks at nothing"])
    elif name == "finds_an_error_of_syntax":
        expect(found("```sh\nif true\n```\n"), ["a.md: the shell does not read this:"])
        expect(found("```python\nx = (\n```\n"), ["a.md: Python does not read this:"])
        expect(found("```python\nx = 1\n```\n```sh\nls\n```\n"), [])
    elif name == "finds_a_preset_that_is_not_there_or_not_to_install_by":
        expect(found("```sh\ncmake --preset other\n```\n"), ["a.md: there is no preset other"])
        expect(found("```sh\ncmake --install build/release\n```\n"), ["a.md: preset release to install has warnings as errors"])
        expect(found("```sh\ncmake --install build/install\n```\n"), [])
    elif name == "finds_a_page_whose_code_is_compared_with_nothing":
        page = {"docs/a.md": '```cpp title="x"\n```\n', "docs/start/b.md": "```cpp\n```\n"}
        expect(compiled(page, set()), ["the C++ of docs/a.md is compared with no source"])
        expect(compiled(page, {"docs/a.md", "docs/c.md"}), ["docs/c.md has no C++"])
    else:
        sys.exit(f"there is no case {name}")


how, *arguments = sys.argv[1:]
if how == "look":
    expect(check_blocks(pages_of(pathlib.Path(arguments[0])), presets_of(pathlib.Path(arguments[0]))), [])
elif how == "compiled":
    expect(compiled(pages_of(pathlib.Path(arguments[0])), set(arguments[1:])), [])
elif how == "configure":
    configure(pages_of(pathlib.Path(arguments[0])), pathlib.Path(arguments[1]), *arguments[2:4], set(arguments[4:]))
else:
    case(how)
