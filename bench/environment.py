# SPDX-License-Identifier: Apache-2.0
"""The environment and the source version of benchmarks."""
import os
import pathlib
import subprocess


def with_peers(**more):
    """Returns the environment with more static thread-local memory, which jemalloc needs because it is loaded
    late."""
    tunables = filter(None, [os.environ.get("GLIBC_TUNABLES"), "glibc.rtld.optional_static_tls=16384"])
    return os.environ | {"GLIBC_TUNABLES": ":".join(tunables)} | more


def version_of_sources():
    described = subprocess.run(["git", "-C", str(pathlib.Path(__file__).parent), "describe", "--always", "--dirty"],
                               capture_output=True, text=True)
    return described.stdout.strip() or "unknown"
