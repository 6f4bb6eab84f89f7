# SPDX-License-Identifier: Apache-2.0
"""Tests shared objects that contain tidemark: check.py CASE FILE... Each case is one fact.

A shared object with thread-local variables of the model initial-exec has the flag STATIC_TLS. When it is loaded late, its
TLS segment must fit into a reserve that the C library keeps for the whole process, some 1.6 KiB.
"""
import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

MAX_TLS_BYTES, MAX_TLS_ALIGNMENT = 512, 64
PLUGINS = 60


def static_tls_faults(path):
    """Returns the reasons that an object may fail to load late, or needs much memory of each thread."""
    done = subprocess.run(["readelf", "--wide", "--dynamic", "--segments", path], capture_output=True, text=True, check=True)
    if "STATIC_TLS" in done.stdout:
        yield "it has the flag STATIC_TLS"
    for line in re.findall(r"^ +TLS +(.*)$", done.stdout, re.M):
        _, _, _, _, size, *_, alignment = (int(word, 16) if word.startswith("0x") else word for word in line.split())
        if size > MAX_TLS_BYTES:
            yield f"its TLS segment has {size} bytes, more than {MAX_TLS_BYTES}"
        if alignment > MAX_TLS_ALIGNMENT:
            yield f"its TLS segment is aligned to {alignment} bytes, more than {MAX_TLS_ALIGNMENT}"


def has_small_dynamic_tls(*paths):
    for path in paths:
        if faults := list(static_tls_faults(path)):
            sys.exit(f"{path}: {'; '.join(faults)}")


def rejects_static_tls(path):
    if list(static_tls_faults(path)) != ["it has the flag STATIC_TLS"]:
        sys.exit(f"the check does not see that {path} uses static TLS: {list(static_tls_faults(path))}")


def contains_no_cuda_runtime(path):
    contents = pathlib.Path(path).read_bytes()
    for name in (b"libcudart", b"cudaGetDriverEntryPoint", b"cudaGetDevice"):
        if name in contents:
            sys.exit(f"{path} contains {name.decode()}: it must call the driver alone, which it finds at run time")


def use_up_static_tls(static_tls_user, folder):
    """Loads copies of a library until the C library has no static TLS left for another one."""
    for i in range(1000):
        copy = shutil.copy(static_tls_user, folder / f"static_tls_user_{i}.so")
        try:
            ctypes.CDLL(copy)
        except OSError as refused:
            if "static TLS" not in str(refused):
                raise
            return
    sys.exit("1000 libraries with static TLS were loaded, and none was refused")


def use_plugin(path, folder):
    for i in range(PLUGINS):
        if ctypes.CDLL(shutil.copy(path, folder / f"plugin_{i}.so")).use_tidemark() != 1:
            sys.exit(f"plugin {i} does not work")


def use_torch(path, folder):
    library = ctypes.CDLL(path)
    library.tidemark_torch_alloc.restype = ctypes.c_void_p
    library.tidemark_torch_configure.restype = ctypes.c_char_p
    library.tidemark_torch_configure.argtypes = [ctypes.c_char_p, ctypes.c_longlong, ctypes.c_char_p, ctypes.c_longlong]
    if library.tidemark_torch_alloc(ctypes.c_size_t(0), 0, None) is not None:
        sys.exit("tidemark_torch: an allocation of 0 bytes is not null")
    said = library.tidemark_torch_configure(b"nonsense", -1, None, -1)  # a thread-local string
    if said is None or b"nonsense" not in said:
        sys.exit(f"tidemark_torch_configure says {said} of a resource that there is not")
    library.tidemark_torch_free(None, ctypes.c_size_t(0), 0, None)


def use_plan(path, folder):
    library = ctypes.CDLL(path)
    library.tidemark_plan_version.restype = ctypes.c_char_p
    if not re.match(rb"\d+\.\d+\.\d+", library.tidemark_plan_version()):
        sys.exit("tidemark_plan_version() is no version")
    message = ctypes.create_string_buffer(200)
    if library.tidemark_plan_make(None, None, None, None, message, ctypes.c_size_t(len(message))) == 0 or not message.value:
        sys.exit("tidemark_plan_make accepts no blocks at all, or says nothing")


def use_numpy(path, folder):
    sys.path.insert(0, os.path.dirname(os.path.dirname(path)))
    import numpy
    import tidemark_numpy
    with tidemark_numpy.pool():
        if float((numpy.ones(1000) + numpy.arange(1000)).sum()) != 500500.0:
            sys.exit("arrays in a pool have wrong elements")


def use_shared_library(path, folder):
    """Calls `tidemark::global_pool().trim(0)` and uses the thread's part of the pool, by the functions' names in the ABI."""
    library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    pool = getattr(library, "_ZN8tidemark11global_poolEv")
    pool.restype = ctypes.c_void_p
    trim = getattr(library, "_ZN8tidemark17synchronized_pool4trimEm")
    trim.restype, trim.argtypes = ctypes.c_size_t, (ctypes.c_void_p, ctypes.c_size_t)
    trim(pool(), 0)


USES = {"tidemark_plugin": use_plugin, "tidemark_torch": use_torch, "tidemark_plan": use_plan, "_core": use_numpy,
        "tidemark_cuda": use_shared_library, "tidemark": use_shared_library}


def work_after_static_tls_is_used_up(static_tls_user, *paths):
    # NumPy itself is loaded first, as PyTorch is before tidemark_torch: these need static TLS of their own.
    if any("_core" in path for path in paths):
        import numpy  # noqa: F401
    with tempfile.TemporaryDirectory() as folder:
        use_up_static_tls(static_tls_user, pathlib.Path(folder))
        for path in paths:
            name = re.match(r"(?:lib)?([a-z_]+)", os.path.basename(path))[1]
            USES[name](path, pathlib.Path(folder))


def work_after_static_tls_is_used_up_in(static_tls_user, prefix):
    """Does the same for the shared libraries of an installed package, and checks their TLS segments."""
    found = [str(path) for name in ("libtidemark.so", "libtidemark_cuda.so") for path in pathlib.Path(prefix).rglob(name)]
    if len(found) != 2:
        sys.exit(f"{prefix} has {found}, and should have two libraries")
    has_small_dynamic_tls(*found)
    work_after_static_tls_is_used_up(static_tls_user, *found)


case, *arguments = sys.argv[1:]
globals()[case](*arguments)
