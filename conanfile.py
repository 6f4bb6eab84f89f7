# SPDX-License-Identifier: Apache-2.0
"""Conan 2: `conan create . -s compiler.cppstd=20` builds tidemark and packages it. It has no requirements. Projects find the package by
its own CMake files, which add the modules if the compiler and generator support them. The options `device`, `thrust`, `mpi`,
`planner` and `tools` add parts. `planner` includes tidemark-plan if the machine has CLI11."""
import pathlib
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy
from conan.tools.scm import Version


class Tidemark(ConanFile):
    name = "tidemark"
    license = "Apache-2.0"
    description = "Scoped memory for numerical C++"
    topics = ("memory", "allocator", "arena", "pmr", "cpp20-modules")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "fPIC": [True, False], "modules": [True, False], "device": [True, False],
               "mpi": [True, False], "thrust": [True, False], "planner": [True, False], "tools": [True, False]}
    default_options = {"shared": False, "fPIC": True, "modules": False, "device": False, "mpi": False, "thrust": False,
                       "planner": False, "tools": False}
    exports_sources = ("CMakeLists.txt", "LICENSE", "cmake/*", "pmr/*", "thrust_adapters/*", "adapters/*", "modules/*",
                       "tools/*", "planner/*", "packaging/debian/*")
    implements = ["auto_shared_fpic"]

    def set_version(self):
        text = (pathlib.Path(self.recipe_folder) / "CMakeLists.txt").read_text()
        self.version = re.search(r"project\(tidemark VERSION ([0-9.]+)", text)[1]

    def config_options(self):
        first = {"clang": "19", "gcc": "15"}.get(str(self.settings.compiler))
        self.options.modules = first is not None and Version(self.settings.compiler.version) >= first

    def validate(self):
        check_min_cppstd(self, 20)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self, generator="Ninja")
        # The build uses no package of the machine that is not from Conan.
        for switch in "BUILD_TESTS", "BUILD_EXAMPLES", "TORCH", "NUMPY", "DLPACK":
            toolchain.cache_variables[f"TIDEMARK_{switch}"] = False
        for switch in "modules", "device", "mpi", "thrust", "planner", "tools":
            toolchain.cache_variables[f"TIDEMARK_{switch.upper()}"] = bool(self.options.get_safe(switch))
        toolchain.user_presets_path = False  # the sources stay as they are
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, pathlib.Path(self.package_folder) / "licenses")

    def package_info(self):
        self.cpp_info.set_property("cmake_find_mode", "none")  # tidemark-config.cmake is the package's own
        self.cpp_info.builddirs = ["lib/cmake/tidemark"]
        self.cpp_info.libs = ["tidemark"]
        if self.options.device or self.options.thrust:
            self.cpp_info.libs.insert(0, "tidemark_cuda")
        if self.options.planner:
            self.cpp_info.builddirs.append("lib/cmake/tidemark-planner")
            self.cpp_info.libs.insert(0, "tidemark_planner")
        if self.settings.os in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = ["pthread", "dl"]
