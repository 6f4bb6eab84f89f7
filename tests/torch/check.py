# SPDX-License-Identifier: Apache-2.0
"""Tests the installed libtidemark_torch.so, and tidemark_torch.py with a stand-in for PyTorch: check.py LIBRARY
CASE.

The stand-in has the parts of PyTorch that tidemark_torch.py uses, and is as strict: addresses of functions
are integers, and the allocator is changed once. Each case is one fact.
"""
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import types

LIBRARY, CASE = sys.argv[1:]
FUNCTIONS = {"tidemark_torch_" + name for name in (
    "alloc", "free", "record_stream", "reset", "memory_fraction", "base_alloc", "begin_pool", "end_pool", "release_pool",
    "segment_alloc", "segment_free", "configure", "begin_step", "end_step", "close_trace", "stats")}


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}\n  is:        {got!r}\n  should be: {wanted!r}")


def expect_raised(what, kind, sentence, call):
    try:
        call()
    except kind as error:
        expect(what, str(error), sentence)
        return
    sys.exit(f"{what}: no {kind.__name__} was raised")


class name_info(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]


def name_of(address):
    """Returns the name of the function at an address."""
    expect("the kind of an address", type(address), int)
    found = name_info()
    if ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(found)) == 0 or found.address != address:
        sys.exit(f"there is no function at {address:#x}")
    return found.name.decode()


# ---- the stand-in --------------------------------------------------------------------------------------------------

SETTERS = ("set_init_fn", "set_reset_fn", "set_memory_fraction_fn", "set_base_alloc_fn", "set_record_stream_fn",
           "set_begin_allocate_to_pool", "set_end_allocate_to_pool_fn", "set_release_pool")


def stand_in(setters=SETTERS, has_allocators=True):
    """Returns a module `torch`, and the record of its allocators."""
    current = []

    class inner_allocator:
        def __init__(self, alloc, free):
            self.functions = {"alloc": name_of(alloc), "free": name_of(free)}

    def setter(name):
        def set_function(self, address):
            self.functions[name] = name_of(address)
        return set_function

    for name in setters:
        setattr(inner_allocator, name, setter(name))

    class CUDAPluggableAllocator:
        def __init__(self, path_to_so_file, alloc_fn_name, free_fn_name):
            library = ctypes.CDLL(path_to_so_file)
            self._allocator = inner_allocator(*(
                ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in (alloc_fn_name, free_fn_name)))

        def allocator(self):
            return self._allocator

    class MemPool:
        def __init__(self, allocator=None):
            expect("type of the pool's allocator", type(allocator), inner_allocator)
            self.allocator = allocator

    def change_current_allocator(allocator):
        if current:
            raise RuntimeError("Can't swap an already initialized allocator")
        current.append(allocator.allocator())

    torch = types.ModuleType("torch")
    torch.__version__ = "2.1.0" if len(setters) < len(SETTERS) else "2.9.0"
    torch.cuda = types.SimpleNamespace(MemPool=MemPool)
    if has_allocators:
        torch.cuda.memory = types.SimpleNamespace(CUDAPluggableAllocator=CUDAPluggableAllocator,
                                                  change_current_allocator=change_current_allocator)
    sys.modules["torch"] = torch
    return current


def _module():
    sys.path.insert(0, str(pathlib.Path(LIBRARY).parent))  # it is built beside the library
    import tidemark_torch
    return tidemark_torch


# ---- the cases -----------------------------------------------------------------------------------------------------


def exports_only_its_functions():
    symbols = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True).stdout
    expect("exported symbols", {line.split()[-1] for line in symbols.splitlines()}, FUNCTIONS)


def sets_each_function_of_the_allocator():
    current = stand_in()
    _module().install(resource="planned", max_cached_bytes=1 << 30)
    expect("the functions", current[0].functions, {
        "alloc": "tidemark_torch_alloc", "free": "tidemark_torch_free", "set_reset_fn": "tidemark_torch_reset",
        "set_memory_fraction_fn": "tidemark_torch_memory_fraction", "set_base_alloc_fn": "tidemark_torch_base_alloc",
        "set_record_stream_fn": "tidemark_torch_record_stream", "set_begin_allocate_to_pool": "tidemark_torch_begin_pool",
        "set_end_allocate_to_pool_fn": "tidemark_torch_end_pool", "set_release_pool": "tidemark_torch_release_pool"})
    expect_raised("a second time", RuntimeError, "Can't swap an already initialized allocator", _module().install)


def explains_an_invalid_setting():
    current = stand_in()
    install = _module().install
    expect_raised("an unknown resource", ValueError,
                  "tidemark_torch: resource is 'arena'; it must be heap or planned", lambda: install(resource="arena"))
    for name, wrong, kind in (("bytes", -1, ValueError), ("bytes", 2**63, ValueError), ("kinds", 0, ValueError),
                              ("bytes", "1GB", TypeError), ("bytes", 1.5, TypeError), ("kinds", True, TypeError)):
        argument = "max_cached_bytes" if name == "bytes" else "max_kinds"
        expect_raised("no number", kind, f"tidemark_torch: {argument} is {wrong!r}, not a number of {name}",
                      lambda: install(**{argument: wrong}))
    expect_raised("no name", TypeError, 'tidemark_torch: resource is 3, not "heap" or "planned"', lambda: install(resource=3))
    expect_raised("no path", TypeError, "tidemark_torch: trace is 3, not a path", lambda: install(trace=3))
    for name, wrong in (("BYTES", "many"), ("KINDS", "0")):
        variable = "TIDEMARK_TORCH_MAX_" + ("CACHED_BYTES" if name == "BYTES" else name)
        os.environ[variable] = wrong
        expect_raised("the environment", ValueError,
                      f"tidemark_torch: {variable} is '{wrong}', not a number of {name.lower()}", install)
        del os.environ[variable]
    expect("allocators that were installed", current, [])


def names_the_required_pytorch_version():
    current = stand_in(setters=SETTERS[:5])
    expect_raised("an old one", RuntimeError,
                  "tidemark_torch: PyTorch 2.1.0 has no set_begin_allocate_to_pool; 2.2 or later has it", _module().install)
    expect("allocators that were installed", current, [])
    stand_in(has_allocators=False)
    expect_raised("one without CUDA", RuntimeError,
                  "tidemark_torch: this PyTorch has no torch.cuda.memory.CUDAPluggableAllocator", _module().install)


def names_a_missing_library():
    stand_in()
    os.environ["TIDEMARK_TORCH_LIBRARY"] = "/nowhere/libtidemark_torch.so"
    expect_raised("without the library", RuntimeError,
                  "tidemark_torch: cannot load /nowhere/libtidemark_torch.so: /nowhere/libtidemark_torch.so: cannot open "
                  "shared object file: No such file or directory; TIDEMARK_TORCH_LIBRARY may name it", _module().begin_step)


def creates_pools_with_separate_functions():
    current = stand_in()
    pool = _module().mem_pool()
    expect("the functions", pool.allocator.functions,
           {"alloc": "tidemark_torch_segment_alloc", "free": "tidemark_torch_segment_free"})
    expect("PyTorch's own allocator", current, [])


def marks_steps_without_a_device():
    torch = _module()
    torch.begin_step()
    torch.begin_step(128)
    torch.begin_step(kind=-(2**70))
    torch.end_step()
    expect_raised("a kind that is no integer", TypeError, "tidemark_torch: kind is 'long', not an integer",
                  lambda: torch.begin_step("long"))
    try:
        with torch.step():
            raise KeyError("passes through")
    except KeyError:
        pass
    torch.collect()
    torch.close_trace()
    expect("statistics", torch.stats(), {})


def raises_a_message_without_a_device():
    # ctypes cannot catch PyTorch's exceptions, so a program loads the library like PyTorch does.
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "load.cpp")
        source.write_text(r"""
#include <dlfcn.h>
#include <cstdio>
#include <exception>
int main(int, char** arguments) {
  auto* const alloc =
      reinterpret_cast<void* (*)(size_t, int, void*)>(dlsym(dlopen(arguments[1], RTLD_NOW), "tidemark_torch_alloc"));
  try {
    alloc(100, 0, nullptr);
  } catch (std::exception const& error) {
    std::puts(error.what());
  }
}
""")
        program = pathlib.Path(folder, "load")
        subprocess.run([os.environ.get("CXX", "c++"), "-o", program, source, "-ldl"], check=True)
        said = subprocess.run([program, LIBRARY], capture_output=True, text=True, check=True).stdout
    expect(f"its beginning, {said}", said.startswith("tidemark_torch: "), True)
    expect(f"the driver's reason, {said}", "CUDA_ERROR" in said, True)


globals()[CASE]()
