# SPDX-License-Identifier: Apache-2.0
from spack.package import *


class Tidemark(CMakePackage):
    """Scoped memory for numerical C++: arenas, pools, epochs, graph arenas, workspaces and planned arenas."""

    # The recipe has no address of the sources: name them by `spack develop --path CLONE tidemark@0.2.0`.
    license("Apache-2.0")

    version("0.2.0")

    variant("shared", default=True, description="Shared libraries")
    variant("modules", default=False, description="C++20 modules (clang >= 19 or GCC >= 15)")
    variant("mpi", default=False, description="Memory for programs on MPI")
    variant("dlpack", default=False, description="Tensors are DLPack's own structures")
    variant("planner", default=False, description="The package in planner/: the search for plans, and tidemark-plan")
    variant("device", default=False, description="The device part, without the real driver")
    variant("cuda", default=False, description="The device part, with the real driver")
    variant("tools", default=False, description="tidemark-report")

    depends_on("cxx", type="build")
    depends_on("cmake@3.28:", type="build")
    depends_on("ninja", type="build")
    depends_on("mpi@3:", when="+mpi")  # windows of shared memory, and dynamic ones
    depends_on("dlpack@0.5:", when="+dlpack")
    depends_on("cli11", type="build", when="+planner")
    depends_on("cuda@13:", when="+cuda")
    conflicts("^mpich@:3", when="+mpi", msg="there are no persistent collectives")
    conflicts("^openmpi@:3", when="+mpi", msg="there are no persistent collectives")
    conflicts("%gcc@:14", when="+modules")
    conflicts("%clang@:18", when="+modules")

    generator("ninja")

    def cmake_args(self):
        switches = {"BUILD_SHARED_LIBS": "shared", "TIDEMARK_MODULES": "modules", "TIDEMARK_MPI": "mpi",
                    "TIDEMARK_DLPACK": "dlpack", "TIDEMARK_PLANNER": "planner", "TIDEMARK_DEVICE": "device",
                    "TIDEMARK_CUDA": "cuda", "TIDEMARK_TOOLS": "tools"}
        absent = ["BUILD_TESTS", "BUILD_EXAMPLES", "TORCH", "NUMPY", "THRUST"]
        return [self.define_from_variant(option, variant) for option, variant in switches.items()] + [
            self.define(f"TIDEMARK_{option}", False) for option in absent]
