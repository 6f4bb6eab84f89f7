# SPDX-License-Identifier: Apache-2.0
"""What looks at the programs of pages finds what is wrong with one: programs_check.py CASE. Each case is one fact, on a page of
a few lines."""
import pathlib
import subprocess
import sys
import tempfile

PROGRAM = '```cpp\n#include <cstdio>\n\nint main() {\n  std::puts("hello");\n}\n```\n'
OUTPUT = '```text title="Output"\nhello\n```\n'


def programs(how, *arguments):
    script = pathlib.Path(__file__).with_name("programs.py")
    done = subprocess.run([sys.executable, script, how, *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def expect(got, wanted_code, wanted_words):
    if got[0] != wanted_code or wanted_words not in got[1]:
        sys.exit(f"ended with {got[0]} rather than {wanted_code}, or does not say {wanted_words!r}:\n{got[1]}")


def page(text):
    (folder / "page.md").write_text(text)
    return folder / "page.md"


def passes_a_page_that_is_right():
    right = page(f"text\n\n{PROGRAM}\n{OUTPUT}\n" + '```sh title="Then"\nls\n```\n')
    expect(programs("blocks", right), 0, "3 blocks")
    expect(programs("run", right, "0", "echo", "hello"), 0, "hello")


def finds_output_that_differs():
    expect(programs("run", page(PROGRAM + OUTPUT), "0", "echo", "hullo"), 1, "says that it prints")


def finds_a_program_that_fails():
    expect(programs("run", page(PROGRAM + OUTPUT), "0", "sh", "-c", "echo hello; exit 3"), 1, "ended with 3")


def finds_a_program_without_output():
    expect(programs("blocks", page(PROGRAM)), 1, "what it prints must follow")


def finds_code_that_is_no_program():
    expect(programs("blocks", page("```cpp\nint x;\n```\n" + OUTPUT)), 1, "C++ must be a program")


def finds_a_block_without_a_title():
    expect(programs("blocks", page(PROGRAM + OUTPUT + "```sh\nls\n```\n")), 1, "has no title")


def finds_a_fence_that_it_cannot_read():
    expect(programs("blocks", page("  ```cpp\n  int x;\n  ```\n")), 1, "a fence is indented")


def joins_programs_at_their_own_lines():
    expect(programs("join", folder / "joined.cpp", page(PROGRAM + OUTPUT)), 0, "page_0")
    joined = (folder / "joined.cpp").read_text()
    if '#line 1 "page.cpp"\n\n\nvoid run() {\n  std::puts' not in joined or joined.count("#include <cstdio>") != 1:
        sys.exit(joined)


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    globals()[sys.argv[1]]()
