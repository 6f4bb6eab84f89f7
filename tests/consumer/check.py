# SPDX-License-Identifier: Apache-2.0
"""Builds separate projects on tidemark, as a user would, and checks the output of CMake and of their
programs.

    install BUILD PREFIX                              installs a build, and moves it to another folder afterwards
    run WORK SOURCE GENERATOR COMPILER TARGET EXPECTED [OPTION...]    builds and runs a program; options are CMake's
    run_first ...                                     the same in an empty folder, after a build of all default targets
    build WORK SOURCE GENERATOR COMPILER TARGET [OPTION...]           configures in an empty folder, and builds a target
    refuse WORK SOURCE GENERATOR COMPILER MESSAGE [OPTION...]         CMake must stop with this sentence
    warn WORK SOURCE GENERATOR COMPILER MESSAGE [OPTION...]           CMake must print this sentence and continue;
                                                                      | separates several sentences
    host WORK SOURCE COMPILER PREFIX                  builds the preset `install`, not optimised, and installs it: no file is of
                                                      another part
    parts WORK SOURCE COMPILER [PART...]              builds each part of these (DEVICE, THRUST, MPI, NUMPY, TORCH, PLANNER, TOOLS)
                                                      alone beside the host's libraries, in the WORK folder of `host`: it adds only
                                                      its own objects and files
    sanitized WORK SOURCE COMPILER [PART...]          the CMake targets and pkg-config files of a library with sanitizers have the
                                                      sanitizers' flags; nothing is built
    lacks_objects FOLDER EXPECTED_TARGET TARGET...    objects of the first target exist, and none of the others
    pkg_config PREFIX COMPILER PACKAGE SOURCE EXPECTED...             builds a program from one source with the flags
                                                                      of pkg-config alone
    debian BUILD SOURCE FOLDER                        makes the Debian packages of a build, checks them, and unpacks
                                                      them below a folder
    conan BUILD SOURCE WORK COMPILER VERSION CONAN    packages a build by the recipe for Conan, and runs the test of
                                                      the recipe; CONAN is the folder of its modules
    load PREFIX LIBRARY                               the dynamic linker resolves an installed library completely
    needs_exceptions COMPILER INCLUDE...              without exceptions, the first error says that they are needed

`run` continues in the WORK folder of an earlier call, because programs of one project share their libraries.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile


def run(*command, may_fail=False, **environment):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                            env={**os.environ, **environment})
    if result.returncode != 0 and not may_fail:
        sys.exit(f"{' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result


def configure(work, source, generator, compiler, *options, may_fail=False):
    # The number of sources per compilation does not affect these tests, and unity builds compile less.
    unity = ["-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=100"]
    programs = f"-DCMAKE_RUNTIME_OUTPUT_DIRECTORY={pathlib.Path(work) / 'bin'}"
    return run("cmake", "-S", source, "-B", work, "-G", generator, programs, *unity, *options, may_fail=may_fail,
               CXX=compiler)


def install(build, prefix):
    prefix = pathlib.Path(prefix)
    first = prefix.with_name(prefix.name + ".first")
    for folder in first, prefix:
        shutil.rmtree(folder, ignore_errors=True)
    run("cmake", "--install", build, "--prefix", first)
    # Compiled interfaces fit one compiler with one set of flags: none may be installed.
    if compiled := [*first.rglob("*.pcm"), *first.rglob("*.gcm")]:
        sys.exit(f"compiled module interfaces were installed: {compiled}")
    # The prefix is moved, so that a path of the build machine in the package would be found out.
    first.rename(prefix)
    # A program is installed if its dependencies are available.
    for program in "tidemark-report", "tidemark-plan":
        if program == "tidemark-plan" and not (pathlib.Path(build) / "planner/tool/tidemark-plan").exists():
            continue
        if program not in run(prefix / "bin" / program, "--help").stdout:
            sys.exit(f"{program} was not installed as a program that runs")


def build_without_warnings(work, target):
    built = run("cmake", "--build", work, "--target", target, "--parallel", 2)
    if "warning: " in built.stdout + built.stderr:
        sys.exit(f"the build warns:\n{built.stdout}{built.stderr}")


def run_program(work, source, generator, compiler, target, expected, *options, built=None):
    configure(work, source, generator, compiler, *options)
    build_without_warnings(work, built or target)
    printed = run(pathlib.Path(work) / "bin" / target).stdout.strip()
    print(printed)
    if printed != expected:
        sys.exit(f"expected: {expected}")


def run_first(work, *arguments):
    shutil.rmtree(work, ignore_errors=True)
    run_program(work, *arguments, built="all")


def build_target(work, source, generator, compiler, target, *options):
    shutil.rmtree(work, ignore_errors=True)
    configure(work, source, generator, compiler, *options)
    build_without_warnings(work, target)


def listen(stops, work, source, generator, compiler, message, *options):
    shutil.rmtree(work, ignore_errors=True)
    result = configure(work, source, generator, compiler, *options, may_fail=True)
    said = result.stdout + result.stderr
    print(said)
    if (result.returncode != 0) != stops:
        sys.exit(f"CMake must {'stop' if stops else 'go on'}")
    for sentence in message.split("|"):
        if sentence not in " ".join(said.split()):  # CMake breaks the lines of a sentence
            sys.exit(f"CMake did not say: {sentence}")


def configure_preset(work, source, compiler, *options):
    run("cmake", "--preset", "install", "-S", source, "-B", work, "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=",
        "-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=100", *options, CXX=compiler)


def parts(work, source, compiler, *requested):
    # The names of the targets and files that a part may add. A part of the device brings the device's library.
    names = {"DEVICE": "cuda", "THRUST": "thrust|cuda", "TORCH": "torch|cuda", "PLANNER": "plan|recorded_trace", "TOOLS": "report"}

    def added_by(*options):
        shutil.rmtree(pathlib.Path(work) / "pkgconfig", ignore_errors=True)
        configure_preset(work, source, compiler, *options)  # the preset turns all other parts off
        targets = re.findall(r"CMakeFiles/(\w+)\.dir/", run("ninja", "-C", work, "-t", "inputs", "all").stdout)
        programs = re.findall(r"FILES \S*/(tidemark-\w+)\"", (pathlib.Path(work) / "cmake_install.cmake").read_text())
        return {*targets, *programs, *(file.name for file in pathlib.Path(work).glob("pkgconfig/*.pc"))}
    alone = added_by()
    print(f"the preset has {sorted(alone)}")
    if "tidemark_headers" not in alone or alone - {"tidemark", "tidemark_headers", "tidemark.pc"}:
        sys.exit("it must have the host's libraries alone")
    for part in requested:
        added = added_by(f"-DTIDEMARK_{part}=ON") - alone
        print(f"{part} adds {sorted(added)}")
        if not added or [name for name in added if not re.search(names.get(part, part.lower()), name)]:
            sys.exit(f"TIDEMARK_{part}=ON adds {sorted(added)}")
        build_without_warnings(work, "all")


def host(work, source, compiler, prefix):
    shutil.rmtree(work, ignore_errors=True)
    configure_preset(work, source, compiler)
    build_without_warnings(work, "all")
    shutil.rmtree(prefix, ignore_errors=True)
    run("cmake", "--install", work, "--prefix", prefix)
    files = [str(file.relative_to(prefix)) for file in pathlib.Path(prefix).rglob("*") if file.is_file()]
    if not any(name.endswith("libtidemark.a") for name in files):
        sys.exit(f"libtidemark.a was not installed: {files}")
    if others := [name for name in files if re.search("cuda|thrust|mpi/|numpy|torch|planner|^bin/", name)]:
        sys.exit(f"these files are of parts that were not requested: {others}")


def sanitized(work, source, compiler, *requested):
    flag = "-fsanitize=address,undefined"
    shutil.rmtree(work, ignore_errors=True)
    configure_preset(work, source, compiler, "-DTIDEMARK_SANITIZE=address,undefined", *(f"-DTIDEMARK_{part}=ON" for part in requested))
    exported = "\n".join(file.read_text() for file in pathlib.Path(work).rglob("CMakeFiles/Export/*/tidemark*-targets.cmake"))
    for target in ["headers", *(["plan_c"] if "PLANNER" in requested else [])]:
        properties = re.search(rf"set_target_properties\(tidemark::{target} PROPERTIES\n(.*?)\n\)", exported, re.DOTALL)[1]
        for kind in ["LINK", *(["COMPILE"] if target == "headers" else [])]:
            if not re.search(rf"INTERFACE_{kind}_OPTIONS \".*{flag}>?\"", properties):
                sys.exit(f"tidemark::{target} lacks {flag} in INTERFACE_{kind}_OPTIONS:\n{properties}")
    # A file without a flag of its own requires tidemark.pc, which has it.
    for file in pathlib.Path(work).rglob("pkgconfig/*.pc"):
        lines = dict(re.findall(r"^(\w+): (.*)$", file.read_text(), re.MULTILINE))
        if flag not in lines["Libs"] or file.name == "tidemark.pc" and flag not in lines["Cflags"]:
            sys.exit(f"{file.name} lacks {flag}: {lines}")


def lacks_objects(folder, wanted, *unwanted):
    def objects_of(target):
        return [*pathlib.Path(folder).rglob(f"{target}.dir/**/*.o")]
    if not objects_of(wanted):
        sys.exit(f"there is no object of {wanted}")
    if found := [str(file) for target in unwanted for file in objects_of(target)]:
        sys.exit(f"these objects are linked by nothing: {found}")


def pkg_config(prefix, compiler, package, source, expected):
    files = {file.parent for file in pathlib.Path(prefix).rglob(f"{package}.pc")}
    if len(files) != 1:
        sys.exit(f"{package}.pc is in these folders: {files}")
    only = {"PKG_CONFIG_LIBDIR": str(files.pop())}  # none of the system's
    flags = run("pkg-config", "--print-errors", "--cflags", "--libs", package, **only).stdout.split()
    version = run("pkg-config", "--modversion", package, **only).stdout.strip()
    libraries = run("pkg-config", "--variable=libdir", package, **only).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "program"
        strict = ["-Wall", "-Wextra", "-Werror", *([] if source.endswith(".c") else ["-std=c++20"])]
        run(compiler, *strict, source, *flags, "-o", program)
        printed = run(program, LD_LIBRARY_PATH=libraries).stdout.strip()
    print(f"{package} {version}: {' '.join(flags)}\n{printed}")
    if printed != expected:
        sys.exit(f"expected: {expected}")


def debian(build, source, folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder = pathlib.Path(folder)
    run("cpack", "--config", pathlib.Path(build) / "CPackConfig.cmake", "-G", "DEB", "-B", folder / "packages")
    faults = []
    built_with = {os.fsencode(os.path.realpath(path)) for path in (build, source)}
    # Names and files that each package must have among its dependencies and contents.
    wanted = {"libtidemark-dev": ("libc6", "lib/libtidemark.a", "lib/pkgconfig/tidemark.pc", "include/tidemark/tidemark.hpp",
                                  "lib/cmake/tidemark/tidemark-config.cmake", "lib/tidemark/modules/tidemark.cppm"),
              "tidemark-tools": ("python3", "bin/tidemark-report")}
    if (pathlib.Path(build) / "planner/tool/tidemark-plan").exists():  # it is built where CLI11 is
        wanted["tidemark-tools"] += ("bin/tidemark-plan",)
    for name, needs in wanted.items():
        wanted[name] = (*needs, f"share/doc/{name}/copyright")
    if "#define TIDEMARK_DLPACK 1" in (pathlib.Path(build) / "include/tidemark/core/config.hpp").read_text():
        wanted["libtidemark-dev"] = ("libdlpack-dev", *wanted["libtidemark-dev"])
    packages = [*(folder / "packages").glob("*.deb")]
    if len(packages) != len(wanted):
        faults.append(f"these packages were made: {packages}")
    for package in packages:
        name, depends = (run("dpkg-deb", "-f", package, field).stdout.strip() for field in ("Package", "Depends"))
        print(run("dpkg-deb", "-I", package).stdout)
        root = folder / name
        run("dpkg-deb", "-x", package, root)
        files = [file for file in root.rglob("*") if file.is_file()]
        for need in wanted[name]:
            if not (root / "usr" / need).exists() if "/" in need else need not in re.split(r"[ ,]+", depends):
                faults.append(f"{name} lacks {need}")
        faults += [f"{name} is not below /usr: {file}" for file in files if root / "usr" not in file.parents]
        faults += [f"{name} has a wheel for Python: {file}" for file in files if file.suffix == ".whl"]
        faults += [f"{name} names a folder of this build in {file}" for file in files
                   if any(path in file.read_bytes() for path in built_with)]
    if faults:
        sys.exit("\n".join(faults))
    for program in (folder / "tidemark-tools/usr/bin").iterdir():
        if program.name not in run(program, "--help").stdout:
            sys.exit(f"{program.name} of the package does not run")


def conan(build, source, work, compiler, version, modules):
    # `conan create` would build the library again: ./run packages does that.
    shutil.rmtree(work, ignore_errors=True)
    work = pathlib.Path(work)
    of_recipe = work / "out/build/Release"
    of_recipe.mkdir(parents=True)
    (of_recipe / "cmake_install.cmake").write_text(f'include("{build}/cmake_install.cmake")\n')
    (work / "profile").write_text(f"""[settings]
os=Linux
arch={os.uname().machine}
build_type=Release
compiler=clang
compiler.version={version.split(".")[0]}
compiler.libcxx=libstdc++11
compiler.cppstd=20
[conf]
tools.build:compiler_executables={{"cpp": "{compiler}"}}
tools.cmake.cmaketoolchain:generator=Ninja
tools.cmake.cmake_layout:test_folder={work / "test"}
""")

    def call(*command):
        return run(sys.executable, pathlib.Path(modules) / "bin/conan", *command, source, "--no-remote", "-pr:a", work / "profile",
                   CONAN_HOME=str(work / "home"), PYTHONPATH=modules, PYTHONDONTWRITEBYTECODE="1")

    said = call("export-pkg", "-of", work / "out", "-o", "&:device=True", "-o", "&:planner=True", "-o", "&:tools=True")
    if "the program prints: 800 bytes, CUDA_ERROR_NO_DEVICE" not in said.stdout + said.stderr:
        sys.exit(f"the package was not tested:\n{said.stdout}{said.stderr}")
    # The planner is built from these, and is in the package because this build has it.
    for file in ("licenses/LICENSE", "es/LICENSE", "es/planner/CMakeLists.txt", "es/tools/CMakeLists.txt",
                 *(["lib/cmake/tidemark-planner/tidemark-planner-config.cmake"] if (pathlib.Path(build) / "planner").exists() else [])):
        if not [*(work / "home").rglob(file)]:
            sys.exit(f"the package lacks {file}")
    # If the compiler cannot import modules, like Debian's own g++, the package has modules only on request.
    for name, major, has_modules in ("gcc", 12, "False"), ("clang", 19, "True"):
        info = json.loads(call("graph", "info", "--format=json", "-s:a", f"compiler={name}", "-s:a", f"compiler.version={major}").stdout)
        if info["graph"]["nodes"]["0"]["options"]["modules"] != has_modules:
            sys.exit(f"with {name} {major} the option modules must be {has_modules}")


def needs_exceptions(compiler, *include):
    done = subprocess.run([compiler, "-std=c++20", "-fno-exceptions", "-fsyntax-only", "-Wfatal-errors", "-x", "c++", "-",
                           *(f"-I{folder}" for folder in include)],
                          input="#include <tidemark/tidemark.hpp>\n", capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    if not errors or "tidemark needs exceptions" not in errors[0]:
        sys.exit(f"the first error is not about exceptions:\n{done.stderr}")


how, *arguments = sys.argv[1:]
cases = {"install": install, "run": run_program, "run_first": run_first, "build": build_target, "parts": parts, "host": host, "refuse": lambda *all: listen(True, *all),
         "warn": lambda *all: listen(False, *all), "sanitized": sanitized, "lacks_objects": lacks_objects, "pkg_config": pkg_config, "debian": debian, "conan": conan,
         "needs_exceptions": needs_exceptions}
cases[how](*arguments)
