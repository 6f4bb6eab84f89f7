# SPDX-License-Identifier: Apache-2.0
"""Tests scripts/portability in a copy of the project that has only this script and its page.

    portability_check.py REPOSITORY CASE
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

repository, case = pathlib.Path(sys.argv[1]), sys.argv[2]


def run(copy, *arguments, path=os.environ["PATH"]):
    done = subprocess.run([sys.executable, copy / "scripts/portability", *arguments], capture_output=True, text=True,
                          env={**os.environ, "PATH": path})
    print(done.stdout + done.stderr)
    return done


def change(file, pattern, text):
    changed, count = re.subn(pattern, text, file.read_text())
    if not count:
        sys.exit(f"{file.name} has no '{pattern}'")
    file.write_text(changed)


def main():
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        script, page = copy / "scripts/portability", copy / "docs/portability.md"
        for file in script, page:
            file.parent.mkdir()
            file.write_text((repository / file.relative_to(copy)).read_text())
        wanted = []
        if case == "finds_a_configuration_that_changed_since_its_run":
            change(script, r'\("-DBUILD_SHARED_LIBS=ON",\)', '("-DBUILD_SHARED_LIBS=YES",)')
            wanted = ["clang22-shared: it has changed since it was run", "gcc12-shared: it has changed", " 2 differences"]
        elif case == "finds_consumers_of_a_library_that_changed_since_its_run":
            change(script, r'(Configuration\("gcc12", [^)]*modules=False)\)', r'\1, standard=23)')
            wanted = [*(f"{name}gcc12: it has changed" for name in ("", "no-rtti-", "no-exceptions-")), " 3 differences"]
        elif case == "finds_a_row_that_fails":
            change(page, r"(`no-rtti-gcc12` \|[^|]*)\| works: [^|]*", r"\1| fails: building ")
            wanted = ["no-rtti-gcc12: the table has no result", " 1 differences"]
        if wanted:
            done = run(copy, "--check")
            failed = done.returncode == 0 or any(text not in done.stdout for text in wanted)
        elif case == "ignores_a_library_of_an_earlier_run":
            (copy / "build/portability/clang22/prefix").mkdir(parents=True)
            compiler = copy / "bin/clang++-22"
            compiler.parent.mkdir()
            compiler.write_text("#!/bin/sh\nexit 1\n")
            compiler.chmod(0o755)
            done = run(copy, "no-rtti-clang22", path=f"{compiler.parent}:{os.environ['PATH']}")
            failed = "no-rtti-clang22: skipped: clang22 has built no library for it" not in done.stdout
        else:
            sys.exit(f"there is no case {case}")
        if failed:
            sys.exit(f"scripts/portability must {case.replace('_', ' ')}")


main()
