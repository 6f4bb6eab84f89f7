# SPDX-License-Identifier: Apache-2.0
"""Tests `reuse lint` with the project's REUSE.toml. It finds a source without a licence, and accepts files that cannot have one.

    licence_check.py REPOSITORY REUSE     REUSE is the folder of its modules
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

LINE = "SPDX-License-" + "Identifier: Apache-2.0"  # in two parts, so that it is not this file's own
SOURCES = ["pmr/src/new.cpp", "adapters/new/new.hpp", "scripts/new", "tests/new/CMakeLists.txt", "tests/new/check.py"]
OTHERS = {"docs/new.md": "# New\n", "tests/fuzz/corpus/files/new": "\x01\x02", "pmr/src/licensed.cpp": f"// {LINE}\n"}

repository, modules = pathlib.Path(sys.argv[1]), sys.argv[2]
with tempfile.TemporaryDirectory() as folder:
    copy = pathlib.Path(folder)
    shutil.copy(repository / "REUSE.toml", copy)
    shutil.copytree(repository / "LICENSES", copy / "LICENSES")
    for name, text in {**OTHERS, **dict.fromkeys(SOURCES, "nothing\n")}.items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text(text)
    done = subprocess.run([sys.executable, "-m", "reuse", "--root", copy, "lint", "--lines"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": modules, "PYTHONDONTWRITEBYTECODE": "1"})
print(done.stdout + done.stderr)
found = [name for name in [*SOURCES, *OTHERS] if f"{name}: no license identifier" in done.stdout]
if done.returncode == 0 or found != SOURCES:
    sys.exit(f"reuse must find {SOURCES}, and found {found}")
