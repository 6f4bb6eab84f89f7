# SPDX-License-Identifier: Apache-2.0
"""Checks the recipes for package managers. Stand-ins for the managers, which are not available here, read the
recipes, and the definitions are compared with the project.

    recipes.py SOURCE vcpkg|spack|conan

A wrong use of vcpkg's real functions or Spack's real classes is not found.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import types

source = pathlib.Path(sys.argv[1])
port = source / "packaging/vcpkg/tidemark"
options = set(re.findall(r"(?:option|set)\((TIDEMARK_\w+)", "\n".join(
    file.read_text() for file in (source / "cmake").glob("*.cmake"))))
[version] = re.findall(r"project\(tidemark VERSION ([0-9.]+)", (source / "CMakeLists.txt").read_text())


def must_be_options(names, where):
    named = {name for name in names if name.startswith("TIDEMARK_")}
    if not named or named - options:
        sys.exit(f"{where} sets options that tidemark lacks: {sorted(named - options) or 'it sets none'}")
    print(f"{where}: {len(named)} options")


def vcpkg():
    manifest = json.loads((port / "vcpkg.json").read_text())
    if manifest["version-semver"] != version or manifest["name"] != port.name:
        sys.exit(f"the port is of {manifest['name']} {manifest['version-semver']}, and this is tidemark {version}")
    calls = ["vcpkg_check_features", "vcpkg_cmake_configure", "vcpkg_cmake_install", "vcpkg_cmake_config_fixup",
             "vcpkg_copy_tools", "vcpkg_fixup_pkgconfig", "vcpkg_install_copyright"]
    with tempfile.TemporaryDirectory() as folder:
        script = "cmake_minimum_required(VERSION 3.28)\n"  # as vcpkg's own script has it
        script += "".join(f'function({call})\n  message(STATUS "{call};${{ARGN}}")\nendfunction()\n' for call in calls)
        script += f'set(FEATURES {" ".join(manifest["features"])})\nset(CURRENT_PACKAGES_DIR "{folder}/packages")\ninclude("{port}/portfile.cmake")\n'
        (pathlib.Path(folder) / "port.cmake").write_text(script)
        done = subprocess.run(["cmake", "-P", f"{folder}/port.cmake"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    said = {line.split(";")[0].removeprefix("-- "): line.split(";")[1:] for line in done.stdout.splitlines()}
    if list(said) != calls:
        sys.exit(f"the port calls {list(said)}")
    features = said["vcpkg_check_features"][3:]
    if features[0::2] != list(manifest["features"]):
        sys.exit(f"the port's features are {features[0::2]}, and its manifest has {list(manifest['features'])}")
    configured = said["vcpkg_cmake_configure"]
    if not (pathlib.Path(configured[1]) / "CMakeLists.txt").samefile(source / "CMakeLists.txt"):
        sys.exit(f"the port takes its sources from {configured[1]}")
    must_be_options([*features[1::2], *(text[2:].split("=")[0] for text in configured)], "the port of vcpkg")


def spack():
    seen = {"version": [], "variant": []}

    class cmake_package:
        def define(self, name, value):
            return f"{name}={value}"

        def define_from_variant(self, name, variant):
            if variant not in seen["variant"]:
                sys.exit(f"the recipe has no variant '{variant}'")
            return f"{name}={variant}"

    stand_in = types.ModuleType("spack.package")
    stand_in.CMakePackage = cmake_package
    for name in "version", "variant", "depends_on", "conflicts", "generator", "license":
        setattr(stand_in, name, lambda first, *_, kind=name, **__: seen.setdefault(kind, []).append(first))
    sys.modules.update({"spack": types.ModuleType("spack"), "spack.package": stand_in})
    recipe = {}
    file = source / "packaging/spack/packages/tidemark/package.py"
    exec(compile(file.read_text(), file, "exec"), recipe)
    if version not in seen["version"]:
        sys.exit(f"the recipe of Spack has {seen['version']}, and this is tidemark {version}")
    must_be_options([text.split("=")[0] for text in recipe["Tidemark"]().cmake_args()], "the recipe of Spack")


def conan():
    loops = re.findall(r"for switch in (.*):", (source / "conanfile.py").read_text())
    names = [name.upper() for loop in loops for name in re.findall(r'"(\w+)"', loop)]
    must_be_options([f"TIDEMARK_{name}" for name in names], "the recipe of Conan")


{"vcpkg": vcpkg, "spack": spack, "conan": conan}[sys.argv[2]]()
