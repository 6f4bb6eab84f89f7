# SPDX-License-Identifier: Apache-2.0
"""Compiles files, which must succeed, and each CASE in them, which must fail with its message: check.py SOURCE... COMPILER FLAG...

All cases are compiled together first. A case whose error another error hides is then compiled alone.
A case "in N lines" is compiled alone: the compiler prints at most N lines, and the first error has the message.
"""
import os
import re
import subprocess
import sys
import tempfile

sources = [argument for argument in sys.argv[1:] if argument.endswith(".cpp")]
compile_command = sys.argv[1 + len(sources):]
is_clang = "clang" in os.path.basename(compile_command[0])


def precompile(folder):
    """Returns options that use the files' includes precompiled, because each case would parse them again."""
    header = os.path.join(folder, "included.hpp")
    with open(header, "w") as out:
        out.writelines(dict.fromkeys(line for source in sources for line in open(source) if line.startswith("#include <")))
    made = header + (".pch" if is_clang else ".gch")
    # Clang would otherwise instantiate the headers' pending templates for each case, which is seven times
    # slower.
    once = ["-fpch-instantiate-templates"] if is_clang else []
    done = subprocess.run([*compile_command, *once, "-x", "c++-header", header, "-o", made], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"the includes do not compile:\n{done.stderr}")
    return ["-include-pch", made] if is_clang else ["-include", header]


def compile_file(path, *options):
    return subprocess.run([*compile_command, *included, "-Werror", "-fsyntax-only", *options, path], capture_output=True, text=True)


def all_cases(text):
    """Returns the file with each case in a block or namespace of its own, on the same lines; and the case of each line."""
    lines, case_of, number = [], [0], 0
    for line, behind in zip(text.split("\n"), [*text.split("\n")[1:], ""]):
        case = re.match(r"#(?:el)?if CASE == (\d+)", line)
        if case or (number and line.startswith("#endif")):
            end = "}" if number else ""
            number = int(case[1]) if case else 0
            begin = f"namespace case_{number} {{" if not behind.startswith(" ") else "{"
            line = f"{end} {begin if number else ''}"
        lines.append(line)
        case_of.append(number)
    return "\n".join(lines), case_of


def errors_by_case(source):
    """Returns the errors of all cases of a file compiled together: number of a case -> texts. Errors without a case have number 0."""
    text, case_of = all_cases(open(source).read())
    path = os.path.join(scratch.name, "all_cases.cpp")
    with open(path, "w") as out:
        out.write(f'#line 1 "{source}"\n{text}')
    folder = f"-I{os.path.dirname(source)}"
    no_limit = ["-ferror-limit=0"] if is_clang else []
    place = rf"^{re.escape(source)}:(\d+):\d+: "
    # Clang names the requiring template after an error, g++ before it.
    parts = re.split(r"^(.* error: .*)$", compile_file(path, folder, *no_limit, "-DCASE=0").stderr, flags=re.M)
    found = {}
    for before, error, behind in zip(parts[::2], parts[1::2], parts[2::2]):
        at = re.match(place, error) or re.search(place + r".*(?:requested|required from) here", behind if is_clang else before, re.M)
        found.setdefault(case_of[int(at[1])] if at else 0, []).append(error + behind)
    return found


def shown_lines(text):
    """Returns the lines that a user sees. This script's header of all includes adds a line above, which is removed."""
    return [line for line in text.splitlines() if not re.search(r"(file included|^ +) from <(built-in|command-line)>", line)]


def check(source):
    """Returns the number of cases, and of those that were compiled alone, and appends to `failures`."""
    cases = re.findall(r"CASE == (\d+)\s+// (message|one sentence|in \d+ lines): (.*)", open(source).read())
    plain = compile_file(source, "-DCASE=0")
    if plain.returncode != 0 or not cases:
        failures.append(f"{source} must compile without a case, and have cases:\n{plain.stderr}")
    together = errors_by_case(source)
    alone = 0
    for number, kind, message in cases:
        errors = together.get(int(number), [])
        if kind == "one sentence" and (len(errors) != 1 or 0 in together):
            errors = []
        if not kind.startswith("in ") and any(re.search(message, error) for error in errors):
            continue
        alone += 1
        result = compile_file(source, f"-DCASE={number}")
        if result.returncode == 0:
            failures.append(f"{source}: case {number} compiles and must not")
        elif not re.search(message, result.stderr):
            failures.append(f"{source}: case {number} fails without '{message}':\n{result.stderr}")
        elif kind == "one sentence" and len(re.findall(r"error: ", result.stderr)) != 1:
            failures.append(f"{source}: case {number} has more than one error:\n{result.stderr}")
        elif kind.startswith("in "):
            lines = shown_lines(result.stderr)
            first = next((line for line in lines if "error: " in line), "")
            if not re.search(message, first):
                failures.append(f"{source}: case {number} has a first error without '{message}':\n{result.stderr}")
            elif len(lines) > int(kind.split()[1]):
                failures.append(f"{source}: case {number} has {len(lines)} lines:\n{result.stderr}")
    return len(cases), alone


scratch = tempfile.TemporaryDirectory()
included = precompile(scratch.name)
failures = []
numbers = [check(source) for source in sources]
print("cases, and how many compiled alone:", numbers, f"{len(failures)} failures", *failures, sep="\n")
sys.exit(1 if failures or not sources else 0)
