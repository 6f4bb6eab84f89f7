# SPDX-License-Identifier: Apache-2.0
"""Test of `conan create`. Builds a program that includes the package. Compares its output."""
import io
import os

from conan import ConanFile
from conan.errors import ConanException
from conan.tools.build import can_run
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout


class TidemarkTest(ConanFile):
    settings = "os", "arch", "compiler", "build_type"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self, generator="Ninja")
        toolchain.user_presets_path = False  # the sources stay as they are
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        if not can_run(self):
            return
        has_device = "tidemark_cuda" in self.dependencies["tidemark"].cpp_info.libs
        printed = io.StringIO()
        self.run(os.path.join(self.cpp.build.bindir, "consumer"), stdout=printed, env="conanrun")
        self.output.info(f"the program prints: {printed.getvalue().strip()}")
        if printed.getvalue() != ("800 bytes, CUDA_ERROR_NO_DEVICE\n" if has_device else "800 bytes\n"):
            raise ConanException("the program of the package prints something else")
