# SPDX-License-Identifier: Apache-2.0
"""The programs on the pages of the site.

    programs.py join FILE PAGE...           writes the programs of these pages as one source, and prints `NAME PAGE NUMBER` of each
    programs.py run PAGE NUMBER COMMAND...  what the command prints must be the block behind that program
    programs.py blocks PAGE...              each block is such a program, or its title says what it is

A program is a block of C++ with `int main()` in it; the next block has the title "Output". There is no other C++, and its main returns nothing.

One translation unit for all is compiled in seconds, and takes seconds more for each that there would be. In it, includes and
imports are at the top, and each program is in a namespace, which it is run by the name of.
"""
import pathlib
import re
import subprocess
import sys

BLOCK = re.compile(r'^```(\w+)(?: title="([^"]*)")?\n(.*?)^```$', re.M | re.S)
TOP = re.compile(r"^(?:#include <.*>|import [\w.]+;)$", re.M)
MAIN = "int main() {"


def blocks_of(page):
    """(language, title, text) of each fenced block."""
    text = pathlib.Path(page).read_text()
    found = BLOCK.findall(text)
    if len(re.findall(r"^ *```", text, re.M)) != 2 * len(found):
        sys.exit(f'{page}: a fence is indented, or has neither the form ```LANGUAGE nor ```LANGUAGE title="…"')
    return found


def programs_of(page):
    """(text, output) of each program."""
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


def blocks(*pages):
    looked = 0
    for page in pages:
        programs_of(page)
        for language, title, text in blocks_of(page):
            looked += 1
            if language != "cpp" and not title:
                sys.exit(f"{page}: a block that is no program has no title that says what it is:\n{text}")
    if looked == 0:
        sys.exit("there is no block: this looks at nothing")
    print(f"{looked} blocks")


how, *arguments = sys.argv[1:]
{"join": join, "run": run, "blocks": blocks}[how](*arguments)
