# SPDX-License-Identifier: Apache-2.0
# The package tidemark_numpy for one Python: Debian's, whatever python3 is first on the path.
set(TIDEMARK_NUMPY_PYTHON /usr/bin/python3 CACHE FILEPATH "The Python that tidemark_numpy is for, which has NumPy >= 1.22")
mark_as_advanced(TIDEMARK_NUMPY_PYTHON)
set(numpy_facts)
set(numpy_default OFF)
# Off with sanitizers, because an ordinary Python cannot load sanitized code. Off for device presets, which
# test the device.
if(PROJECT_IS_TOP_LEVEL AND NOT TIDEMARK_SANITIZE AND NOT TIDEMARK_CUDA)
  set(numpy_default ON)
endif()
if(numpy_default OR TIDEMARK_NUMPY)
  execute_process(COMMAND ${TIDEMARK_NUMPY_PYTHON} -c [[
import numpy, os, sysconfig
assert tuple(map(int, numpy.__version__.split(".")[:2])) >= (1, 22)
headers = sysconfig.get_path("include"), numpy.get_include()
assert os.path.exists(headers[0] + "/Python.h") and os.path.exists(headers[1] + "/numpy/arrayobject.h")
modules = sysconfig.get_path("platlib", "posix_prefix", vars={"base": "", "platbase": ""}).lstrip("/")
print(*headers, sysconfig.get_config_var("EXT_SUFFIX"), modules, sep=";", end="")]]
    OUTPUT_VARIABLE numpy_facts ERROR_QUIET RESULT_VARIABLE numpy_missing)
  if(NOT numpy_missing EQUAL 0)
    set(numpy_facts)
    set(numpy_default OFF)
  endif()
endif()
option(TIDEMARK_NUMPY "The Python package tidemark_numpy (needs NumPy >= 1.22 and the headers of Python)" ${numpy_default})
if(TIDEMARK_NUMPY AND NOT numpy_facts)
  message(FATAL_ERROR "TIDEMARK_NUMPY needs a Python with NumPy >= 1.22 and headers, unlike ${TIDEMARK_NUMPY_PYTHON}: install "
    "python3-numpy and python3-dev, or set TIDEMARK_NUMPY_PYTHON")
endif()
if(NOT TIDEMARK_NUMPY)
  set(numpy_why "TIDEMARK_NUMPY is off")
  if(numpy_missing)
    set(numpy_why "${TIDEMARK_NUMPY_PYTHON} lacks NumPy >= 1.22 or headers (Debian's python3-numpy and python3-dev)")
  endif()
  message(STATUS "tidemark: left out: the Python package tidemark_numpy: ${numpy_why}")
  return()
endif()
list(GET numpy_facts 0 1 TIDEMARK_NUMPY_INCLUDE_DIRS)
list(GET numpy_facts 2 TIDEMARK_NUMPY_SUFFIX)
list(GET numpy_facts 3 numpy_modules)
set(TIDEMARK_NUMPY_INSTALL_DIR ${numpy_modules} CACHE STRING "Folder below the prefix that tidemark_numpy is installed in")
mark_as_advanced(TIDEMARK_NUMPY_INSTALL_DIR)
