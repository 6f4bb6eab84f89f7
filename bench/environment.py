# SPDX-License-Identifier: Apache-2.0
"""What benchmarks run in, and what they are of."""
import os
import pathlib
import subprocess


def with_peers(**more):
    """This process's own; jemalloc, which is loaded and not linked, needs more thread-local memory than the loader sets aside."""
    tunables = filter(None, [os.environ.get("GLIBC_TUNABLES"), "glibc.rtld.optional_static_tls=16384"])
    return os.environ | {"GLIBC_TUNABLES": ":".join(tunables)} | more


def version_of_sources():
    described = subprocess.run(["git", "-C", str(pathlib.Path(__file__).parent), "describe", "--always", "--dirty"],
                               capture_output=True, text=True)
    return described.stdout.strip() or "unknown"
