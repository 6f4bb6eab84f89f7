# SPDX-License-Identifier: Apache-2.0
"""Checks that programs.py finds faults: programs_check.py CASE COMPILER. Each case is one fact, on a page of
a few lines."""
import json
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


def compile_commands(compiler, *options):
    command = " ".join([compiler, *options, "-o", "joined.o", "-c", "joined.cpp"])
    entry = {"directory": str(folder), "command": command, "file": str(folder / "joined.cpp")}
    (folder / "compile_commands.json").write_text(json.dumps([entry]))


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


def finds_an_import_whose_target_is_not_linked():
    two = PROGRAM.replace("#include <cstdio>\n", "#include <cstdio>\nimport tidemark;\nimport tidemark.mpi;\n")
    cmake = '```cmake title="x"\ntarget_link_libraries(a PRIVATE tidemark::mpi)\n```\n'
    expect(programs("blocks", page(two + OUTPUT)), 1, "need tidemark::mpi tidemark::tidemark, and it links tidemark::tidemark")
    expect(programs("blocks", page(two + OUTPUT + cmake)), 1, "and it links tidemark::mpi")
    expect(programs("blocks", page(two + OUTPUT + cmake.replace("mpi)", "mpi tidemark::tidemark)"))), 0, "3 blocks")


def finds_an_include_whose_target_is_not_linked():
    thrust = PROGRAM.replace("<cstdio>\n", "<cstdio>\n#include <tidemark/thrust.hpp>\n#include <tidemark/tidemark.hpp>\n")
    expect(programs("blocks", page(thrust + OUTPUT)), 1, "need tidemark::thrust_headers, and")


def finds_a_program_that_lacks_an_include():
    compile_commands(sys.argv[1])
    without = PROGRAM.replace("#include <cstdio>\n", "")
    expect(programs("alone", folder, folder / "joined.cpp", page(without + OUTPUT)), 1, "does not compile by itself")
    expect(programs("alone", folder, folder / "joined.cpp", page(PROGRAM + OUTPUT)), 0, "")


def finds_a_program_that_lacks_a_definition():
    compile_commands(sys.argv[1], "-DLEVEL=3")
    needs = PROGRAM.replace("int main", "static_assert(LEVEL == 2);\n\nint main")
    cmake = '```cmake title="x"\ntarget_compile_definitions(a PRIVATE LEVEL=2)\n```\n'
    expect(programs("alone", folder, folder / "joined.cpp", page(needs + OUTPUT)), 1, "does not compile by itself")
    expect(programs("alone", folder, folder / "joined.cpp", page(needs + OUTPUT + cmake)), 0, "")
    expect(programs("definitions", page(needs + OUTPUT + cmake)), 0, "LEVEL=2")


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
    globals()[sys.argv[2]]()
