# SPDX-License-Identifier: Apache-2.0
"""Checks that header_code.py finds faults: header_code_check.py CASE. Each case is one fact, on a header and
a source of a few lines."""
import pathlib
import subprocess
import sys
import tempfile

HEADER = "#pragma once\n/// ```cpp\n/// work<<<1, 2>>>(x);\n/// more(…);\n/// ```\nvoid f();\n"


def header_code(how, *arguments):
    script = pathlib.Path(__file__).with_name("header_code.py")
    done = subprocess.run([sys.executable, script, how, folder, *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def expect(got, wanted_code, wanted_words):
    if got[0] != wanted_code or wanted_words not in got[1]:
        sys.exit(f"ended with {got[0]} rather than {wanted_code}, or does not say {wanted_words!r}:\n{got[1]}")


def write(header, source):
    (folder / "include/tidemark").mkdir(parents=True, exist_ok=True)
    (folder / "include/tidemark/x.hpp").write_text(header)
    (folder / "x.in").write_text(source)
    return folder / "x.in"


def takes_a_block_with_its_place_in_the_header():
    source = write(HEADER, "void g() {\n// block x.hpp: … => 1, 2\n}\n")
    expect(header_code("check", source), 0, "1 blocks of 1 headers")
    expect(header_code("fill", source, folder / "x.cpp"), 0, "")
    wanted = 'void g() {\n#line 3 "include/tidemark/x.hpp"\nwork(x);\nmore(1, 2);\n#line 3 "x.in"\n}\n'
    if (folder / "x.cpp").read_text() != wanted:
        sys.exit((folder / "x.cpp").read_text())


def finds_a_block_that_is_not_compiled():
    source = write(HEADER + HEADER, "// block x.hpp\n")
    expect(header_code("check", source), 1, "tidemark/x.hpp has 2 blocks of C++, and 1 are compiled")
    expect(header_code("check", write(HEADER, "// block y.hpp\n")), 1, "there is no header y.hpp")
    expect(header_code("fill", write(HEADER, "// block x.hpp\n// block x.hpp\n"), folder / "x.cpp"), 1, "has 1 blocks")


def finds_a_replaced_text_that_is_not_there():
    expect(header_code("fill", write(HEADER, "// block x.hpp: ... => 1\n"), folder / "x.cpp"), 1, "does not have ...")


def finds_a_fence_that_it_cannot_read():
    expect(header_code("check", write(HEADER.replace("/// ```\n", "/// ``` // here\n"), "")), 1, "cannot read")
    expect(header_code("check", write(HEADER.replace("/// ```\n", ""), "")), 1, "has no end")
    expect(header_code("check", write(HEADER.replace("```cpp", "```"), "")), 1, "does not say its language")


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    globals()[sys.argv[1]]()
