# SPDX-License-Identifier: Apache-2.0
"""Builds a project of its own on tidemark, as a user would, runs it and compares its output.

`installed`: installs a build into an empty prefix and finds the package there. `subproject`: adds the source folder.
"""
import os
import pathlib
import shutil
import subprocess
import sys

how, source_dir, build_dir, project_dir, work_dir, generator, compiler, standard, expected = sys.argv[1:]
work = pathlib.Path(work_dir)
shutil.rmtree(work, ignore_errors=True)
work.mkdir(parents=True)


def run(*command):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                            env={**os.environ, "CXX": compiler})
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result.stdout


dialect = [] if standard == "none" else [f"-DCMAKE_CXX_STANDARD={standard}"]
if how == "installed":
    run("cmake", "--install", build_dir, "--prefix", work / "prefix")
    # Compiled interfaces fit one compiler with one set of flags: none may be installed.
    if compiled := [*(work / "prefix").rglob("*.pcm"), *(work / "prefix").rglob("*.gcm")]:
        sys.exit(f"compiled module interfaces were installed: {compiled}")
    if "tidemark-report" not in run(work / "prefix/bin/tidemark-report", "--help"):
        sys.exit("tidemark-report was not installed as a program that runs")
    # Where there is what it is made with.
    if (pathlib.Path(build_dir) / "tools/tidemark-plan/tidemark-plan").exists():
        if "tidemark-plan" not in run(work / "prefix/bin/tidemark-plan", "--help"):
            sys.exit("tidemark-plan was not installed as a program that runs")
    # The prefix is moved, so that a path of the build machine in the package would be found out.
    (work / "prefix").rename(work / "moved")
    place = f"-DCMAKE_PREFIX_PATH={work / 'moved'}"
else:
    place = f"-DTIDEMARK_SOURCE_DIR={source_dir}"
# Clang compiles each of our sources by itself in this very build; several at once show the same here, in less time.
unity = ["-DCMAKE_UNITY_BUILD=ON"] if "clang" in compiler else []
run("cmake", "-S", project_dir, "-B", work / "build", "-G", generator, place, *dialect, *unity)
run("cmake", "--build", work / "build")
printed = run(work / "build" / "consumer").strip()
print(printed)
sys.exit(0 if printed == expected else f"expected: {expected}")
