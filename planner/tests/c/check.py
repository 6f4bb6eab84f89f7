# SPDX-License-Identifier: Apache-2.0
"""Checks libtidemark_plan.so, its header and its wheel: check.py CASE ARGUMENT... Each case is one fact."""
import base64
import hashlib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

case, *arguments = sys.argv[1:]


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}\n  is:        {got!r}\n  should be: {wanted!r}")


def run(*command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def exports_exactly_the_declarations_of_its_header(library, header):
    declared = set(re.findall(r"^TIDEMARK_PLAN_API [^;]*?\b(tidemark_plan_\w+)\(", pathlib.Path(header).read_text(), re.M))
    expect("functions", declared, {"tidemark_plan_make", "tidemark_plan_abi_version", "tidemark_plan_version"})
    symbols = [line.split()[-1] for line in run("nm", "-D", "--defined-only", library).splitlines()]
    expect("exported symbols", set(symbols), {f"{name}@@tidemark_plan_1" for name in declared} | {"tidemark_plan_1"})


def needs_no_library_of_tidemark(library):
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", library))
    expect("libraries of ours", [name for name in needed if "tidemark" in name], [])
    soname = re.findall(r"\(SONAME\).*\[(.*)\]", run("readelf", "-d", library))
    expect("its name", soname, ["libtidemark_plan.so.1"])


def header_compiles_in_c_and_cpp(header, c_compiler, cxx_compiler):
    flags = ("-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", f"-I{pathlib.Path(header).parent}")
    source = ("#include <tidemark_plan.h>\nextern tidemark_plan_options options;\n"
              "tidemark_plan_options options = TIDEMARK_PLAN_OPTIONS_INIT;\n")
    for compiler, language, standards in ((c_compiler, "c", ("c11", "c17")), (cxx_compiler, "c++", ("c++11", "c++20"))):
        for standard in standards:
            run(compiler, *flags, f"-std={standard}", "-x", language, "-", input=source)


def documented_code_prints_the_documented_output(page, library, header, c_compiler):
    found = re.findall(r"^```c\n(.*?)^```\n\nprints\n\n```\n(.*?)^```$", pathlib.Path(page).read_text(), re.M | re.S)
    expect("has code in C with its output", len(found) > 0, True)
    library = pathlib.Path(library)
    with tempfile.TemporaryDirectory() as folder:
        for code, wanted in found:
            source, program = pathlib.Path(folder, "page.c"), pathlib.Path(folder, "page")
            source.write_text(code)
            run(c_compiler, "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{pathlib.Path(header).parent}", source,
                library, f"-Wl,-rpath,{library.parent}", "-o", program)
            expect(f"output of\n{code}", run(program), wanted)


def wheel_of(folder):
    wheels = [*pathlib.Path(folder).glob("*.whl")]
    expect("wheels", len(wheels), 1)
    return wheels[0]


def wheel_lists_its_files(folder):
    path = wheel_of(folder)
    version, tag = re.fullmatch(r"tidemark_plan-([\d.]+)-(py3-none-linux_\w+)\.whl", path.name).groups()
    info = f"tidemark_plan-{version}.dist-info"
    with zipfile.ZipFile(path) as wheel:
        expect("the first bad file", wheel.testzip(), None)
        names = wheel.namelist()
        rows = [line.rsplit(",", 2) for line in wheel.read(f"{info}/RECORD").decode().splitlines()]
        expect("list", sorted(name for name, _, _ in rows), sorted(names))
        for name, digest, length in rows:
            if name == f"{info}/RECORD":
                expect("the list of itself", (digest, length), ("", ""))
                continue
            content = wheel.read(name)
            hashed = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            expect(f"hash and length of {name}", (digest, length), (f"sha256={hashed}", str(len(content))))
        expect("the tag", f"Tag: {tag}\n" in wheel.read(f"{info}/WHEEL").decode(), True)
        expect("name and version", f"Name: tidemark-plan\nVersion: {version}\n" in wheel.read(f"{info}/METADATA").decode(), True)
        expect("times", {entry.date_time for entry in wheel.infolist()}, {(1980, 1, 1, 0, 0, 0)})


def wheel_is_installed_by_pip(folder, target, python):
    """Installs into a folder that the package's tests use."""
    shutil.rmtree(target, ignore_errors=True)
    run(python, "-m", "pip", "install", "--no-index", "--no-deps", "--no-cache-dir", "--disable-pip-version-check",
        "--target", target, wheel_of(folder))
    wanted = re.match(r"tidemark_plan-([\d.]+)-", wheel_of(folder).name)[1]
    code = "import tidemark_plan; print(tidemark_plan.version(), tidemark_plan.plan([0, 1], [2, 3], [4, 5]).height)"
    expect("output", run(python, "-c", code, env={"PYTHONPATH": target}), f"{wanted} 9\n")


globals()[case](*arguments)
