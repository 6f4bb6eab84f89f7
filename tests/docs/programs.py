# SPDX-License-Identifier: Apache-2.0
"""Checks the programs on the pages of the site.

    programs.py join FILE PAGE...           writes the programs of these pages as one source, and prints `NAME PAGE NUMBER` of each
    programs.py run PAGE NUMBER COMMAND...  the output of the command must be the block after that program
    programs.py blocks PAGE...              each block is such a program, or has a title; the targets that
                                            the page links contain all of tidemark that a program imports
                                            and includes
    programs.py definitions PAGE            prints the page's arguments of target_compile_definitions
    programs.py alone FOLDER SOURCE PAGE... each program compiles by itself, with its own includes, with
                                            its page's definitions, and as SOURCE is compiled by
                                            compile_commands.json in FOLDER

A program is a block of C++ with `int main()` in it; the next block has the title "Output". A page has no
other C++, and main returns nothing.

One translation unit for all programs is compiled and linked in seconds; each further unit would add seconds.
In the unit, includes and imports are at the top, and each program is in a namespace, whose name selects it. A
page in the unit sees the includes of all others. Therefore `alone` checks each page by itself, without
generating code, in half a second.
"""
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

BLOCK = re.compile(r'^```(\w+)(?: title="([^"]*)")?\n(.*?)^```$', re.M | re.S)
TOP = re.compile(r"^(?:#include <.*>|import [\w.]+;)$", re.M)
MAIN = "int main() {"
PARTS = {"cuda", "thrust", "mpi"}  # parts that have targets of their own


def blocks_of(page):
    """Returns (language, title, text) of each fenced block."""
    text = pathlib.Path(page).read_text()
    found = BLOCK.findall(text)
    if len(re.findall(r"^ *```", text, re.M)) != 2 * len(found):
        sys.exit(f'{page}: a fence is indented, or has neither the form ```LANGUAGE nor ```LANGUAGE title="…"')
    return found


def programs_of(page):
    """Returns (text, output) of each program."""
    blocks = blocks_of(page)
    found = []
    for (language, _, text), behind in zip(blocks, [*blocks[1:], ("", "", "")]):
        if language == "cpp":
            if text.count(MAIN) != 1 or behind[:2] != ("text", "Output"):
                sys.exit(f'{page}: C++ must be a program with `{MAIN}`, and what it prints must follow as ```text title="Output"')
            found.append((text, behind[2]))
    return found


def join(file, *pages):
    tops, programs, names = set(), "", []
    for page in pages:
        for number, (text, _) in enumerate(programs_of(page)):
            path = pathlib.Path(page)
            name = f"{path.parent.name}_{path.stem}_{number}"
            names.append(name)
            tops.update(TOP.findall(text))
            text = TOP.sub("", text).replace(MAIN, "void run() {")  # lines keep their numbers
            programs += f'\nnamespace {name} {{\n#line 1 "{path.stem}.cpp"\n{text}}}\n'
            print(name, page, number)
    source = "\n".join(["#include <cstring>", *sorted(tops)]) + "\n" + programs
    source += "\nint main(int n, char** arguments) {\n"
    for name in names:
        source += f'  if (n == 2 && std::strcmp(arguments[1], "{name}") == 0) return {name}::run(), 0;\n'
    source += "  return 2;\n}\n"
    file = pathlib.Path(file)
    if not file.exists() or file.read_text() != source:  # what has not changed is not compiled again
        file.write_text(source)


def run(page, number, *command):
    expected = programs_of(page)[int(number)][1]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout, done.stderr, sep="")
    if done.returncode != 0:
        sys.exit(f"the program ended with {done.returncode}")
    if done.stdout != expected:
        sys.exit(f"{page} says that it prints:\n{expected}")


def targets_for(text):
    """Returns the targets with the imports and includes of a program. A target of headers links the targets
    below it."""
    needed = set()
    for module in re.findall(r"^import (tidemark[\w.]*);", text, re.M):
        needed.add("tidemark::" + (module.partition(".")[2] if module.partition(".")[2] in PARTS else "tidemark"))
    headers = re.findall(r"^#include <tidemark/(\w+)", text, re.M)
    needed |= {f"tidemark::{header}_headers" for header in headers if header in PARTS}
    if headers and not any(header in PARTS for header in headers):
        needed.add("tidemark::headers")
    return needed


def cmake_of(page):
    return "".join(text for language, _, text in blocks_of(page) if language == "cmake")


def check_targets(page):
    """Requires that a page links exactly the targets that its programs need. A page without links needs tidemark::tidemark, which
    the reader links since docs/start/first_program.md."""
    needed = set().union(*(targets_for(text) for text, _ in programs_of(page)))
    links = re.findall(r"target_link_libraries\(\w+ PRIVATE ([^)]*)\)", cmake_of(page))
    linked = {target for targets in links for target in targets.split()} if links else {"tidemark::tidemark"}
    if needed and needed != linked:
        sys.exit(f"{page}: its programs need {' '.join(sorted(needed))}, and it links {' '.join(sorted(linked))}")


def definitions_of(page):
    found = re.findall(r"target_compile_definitions\(\w+ PRIVATE ([^)]*)\)", cmake_of(page))
    return [definition for definitions in found for definition in definitions.split()]


def definitions(page):
    print(";".join(definitions_of(page)))


def alone(folder, source, *pages):
    commands = json.loads((pathlib.Path(folder) / "compile_commands.json").read_text())
    entry = next(each for each in commands if pathlib.Path(each["file"]) == pathlib.Path(source))
    command = shlex.split(entry["command"])
    command = command[:command.index("-o")] + ["-fsyntax-only"]
    failures = []
    with tempfile.TemporaryDirectory() as name:
        for page in pages:
            own = definitions_of(page)
            kept = [word for word in command if word.partition("=")[0] not in {"-D" + each.partition("=")[0] for each in own}]
            for number, (text, _) in enumerate(programs_of(page)):
                file = pathlib.Path(name) / f"{pathlib.Path(page).stem}_{number}.cpp"
                file.write_text(text)
                done = subprocess.run([*kept, *(f"-D{each}" for each in own), str(file)], cwd=entry["directory"],
                                      capture_output=True, text=True)
                if done.returncode != 0:
                    failures.append(f"{page}: a program does not compile by itself:\n{done.stderr}")
    if failures:
        sys.exit("\n".join(failures))


def blocks(*pages):
    looked = 0
    for page in pages:
        check_targets(page)
        for language, title, text in blocks_of(page):
            looked += 1
            if language != "cpp" and not title:
                sys.exit(f"{page}: a block that is no program has no title that says what it is:\n{text}")
    if looked == 0:
        sys.exit("there is no block: this looks at nothing")
    print(f"{looked} blocks")


how, *arguments = sys.argv[1:]
{"join": join, "run": run, "blocks": blocks, "definitions": definitions, "alone": alone}[how](*arguments)
