// SPDX-License-Identifier: Apache-2.0
// The extension module `tidemark_numpy._core`: the C part of the package. Python checks the arguments, except
// capsules. A capsule is a pool.
#include "data_handler.hpp"

#include <numpy/arrayobject.h>

#include <exception>
#include <new>
#include <stdexcept>
#include <system_error>

namespace tidemark::numpy {
namespace {

// Raises the current C++ exception as a Python exception.
PyObject* raise_current() noexcept {
  try {
    throw;
  } catch (std::bad_alloc const&) {
    return PyErr_NoMemory();
  } catch (std::invalid_argument const& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (std::system_error const& error) {
    if (PyObject* const arguments = Py_BuildValue("(is)", error.code().value(), error.what())) {
      PyErr_SetObject(PyExc_OSError, arguments);
      Py_DECREF(arguments);
    }
  } catch (std::exception const& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

data_handler* handler_of(PyObject* capsule) noexcept {
  data_handler* const handler = data_handler::of(capsule);
  if (handler == nullptr)
    PyErr_SetString(PyExc_TypeError, "tidemark_numpy: this is no pool of tidemark_numpy");
  return handler;
}

PyObject* make(PyObject*, PyObject* arguments) {
  unsigned long long max_cached_bytes = 0;
  int huge_pages = 0;
  if (!PyArg_ParseTuple(arguments, "Kp", &max_cached_bytes, &huge_pages)) return nullptr;
  try {
    return data_handler::make_capsule({.max_cached_bytes = max_cached_bytes, .huge_pages = huge_pages != 0});
  } catch (...) {
    return raise_current();
  }
}

// Returns the capsule in effect for this context, or None if the capsule is not ours.
PyObject* current(PyObject*, PyObject*) {
  PyObject* const capsule = PyDataMem_GetHandler();
  if (capsule == nullptr || data_handler::of(capsule) != nullptr) return capsule;
  Py_DECREF(capsule);
  Py_RETURN_NONE;
}

// Sets any capsule of a handler, ours or not. Returns the previous capsule.
PyObject* set_handler(PyObject*, PyObject* capsule) { return PyDataMem_SetHandler(capsule); }

PyObject* stats(PyObject*, PyObject* capsule) {
  data_handler* const handler = handler_of(capsule);
  if (handler == nullptr) return nullptr;
  const array_memory_stats now = handler->memory().stats();
  return Py_BuildValue("(KKKKnnnn)", static_cast<unsigned long long>(now.allocations),
                       static_cast<unsigned long long>(now.deallocations),
                       static_cast<unsigned long long>(now.hits), static_cast<unsigned long long>(now.misses),
                       static_cast<Py_ssize_t>(now.used_blocks), static_cast<Py_ssize_t>(now.used_bytes),
                       static_cast<Py_ssize_t>(now.cached_bytes), static_cast<Py_ssize_t>(now.held_bytes));
}

PyObject* trim(PyObject*, PyObject* capsule) {
  data_handler* const handler = handler_of(capsule);
  if (handler == nullptr) return nullptr;
  handler->memory().trim();
  Py_RETURN_NONE;
}

PyObject* retire(PyObject*, PyObject* capsule) {
  data_handler* const handler = handler_of(capsule);
  if (handler == nullptr) return nullptr;
  handler->memory().retire();
  Py_RETURN_NONE;
}

// Takes paths as bytes; an empty path means no such file.
PyObject* open_trace(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  char const *csv = nullptr, *chrome = nullptr;
  if (!PyArg_ParseTuple(arguments, "Oyy", &capsule, &csv, &chrome)) return nullptr;
  data_handler* const handler = handler_of(capsule);
  if (handler == nullptr) return nullptr;
  try {
    return PyBool_FromLong(handler->open_trace({.csv = csv, .chrome = chrome}));
  } catch (...) {
    return raise_current();
  }
}

PyObject* close_trace(PyObject*, PyObject* capsule) {
  data_handler* const handler = handler_of(capsule);
  if (handler == nullptr) return nullptr;
  try {
    handler->close_trace();
  } catch (...) {
    return raise_current();
  }
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {{"make", make, METH_VARARGS, nullptr},
                         {"current", current, METH_NOARGS, nullptr},
                         {"set_handler", set_handler, METH_O, nullptr},
                         {"stats", stats, METH_O, nullptr},
                         {"trim", trim, METH_O, nullptr},
                         {"retire", retire, METH_O, nullptr},
                         {"open_trace", open_trace, METH_VARARGS, nullptr},
                         {"close_trace", close_trace, METH_O, nullptr},
                         {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "tidemark_numpy._core", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace tidemark::numpy

PyMODINIT_FUNC PyInit__core() {
  import_array();
  PyObject* const module = PyModule_Create(&tidemark::numpy::definition);
#ifdef Py_GIL_DISABLED
  if (module != nullptr) PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
  return module;
}
