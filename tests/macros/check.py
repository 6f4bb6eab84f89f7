# SPDX-License-Identifier: Apache-2.0
"""Compiles every public header behind macros of other headers: check.py FOLDER[:PREFIX]... -- COMPILE
COMMAND.

Takes from each include folder the headers whose paths begin with the prefix, in one translation unit. Other
headers that they include come first, because the standard library itself does not compile behind all of these
macros.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

split = sys.argv.index("--")
folders = [folder.partition(":") for folder in sys.argv[1:split]]
command = sys.argv[split + 1:]
macros = pathlib.Path(__file__).with_name("others_macros.hpp")

headers, of_others = [], set()
for folder, _, prefix in folders:
    for path in sorted(path for path in pathlib.Path(folder).rglob("*") if path.suffix in (".h", ".hpp")):
        name = path.relative_to(folder).as_posix()
        if not name.startswith(prefix):
            continue
        of_others |= set(re.findall(r"^ *# *include <((?!tidemark)[^>]+)>", path.read_text(), re.M))
        if "detail" not in path.parts:
            headers.append(name)
if not headers:
    sys.exit(f"there is no header in {folders}")

with tempfile.TemporaryDirectory() as scratch:
    unit = pathlib.Path(scratch) / "all_headers.cpp"
    lines = [f"#if __has_include(<{other}>)\n#include <{other}>\n#endif" for other in sorted(of_others, key=len)]  # <mpi.h> before <mpi-ext.h>
    lines += [f'#undef {name}' for name in sorted(set(re.findall(r"^#define (\w+)", macros.read_text(), re.M)))]
    lines += [f'#include "{macros}"'] + [f"#include <{header}>" for header in headers]
    unit.write_text("\n".join(lines) + "\nint main() {}\n")
    done = subprocess.run([*command, "-fsyntax-only", str(unit)], capture_output=True, text=True)
print(f"{len(headers)} headers behind {len(lines) - len(headers)} lines of others")
sys.exit(done.stderr if done.returncode != 0 else 0)
