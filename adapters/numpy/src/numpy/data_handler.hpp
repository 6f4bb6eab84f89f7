// SPDX-License-Identifier: Apache-2.0
/// @file
/// `data_handler`: an `array_memory` as a handler of NumPy (NEP 49). Owns the memory and its traces.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define NPY_TARGET_VERSION NPY_1_22_API_VERSION  // for NumPy 2, whose headers support older versions
#include <numpy/ndarraytypes.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/telemetry/trace_log.hpp>

#include "array_memory.hpp"

namespace tidemark::numpy {

/// The functions that NumPy calls for the data of arrays. They call nothing of Python: any thread may call
/// them, with or without the GIL.
///
/// Each array holds a reference to the capsule of its handler. No array of the handler exists when the
/// capsule and the handler end.
class data_handler {
 public:
  /// Returns a new capsule that owns a new handler; null with a Python error set.
  [[nodiscard]] static PyObject* make_capsule(array_memory_options options);
  /// Returns the handler of a capsule; null if the capsule is not ours.
  [[nodiscard]] static data_handler* of(PyObject* capsule) noexcept;

  [[nodiscard]] array_memory& memory() noexcept { return memory_; }

  /// Writes all requests to files from now on. @return false if a trace is already open. @throws as
  /// `trace_log`.
  [[nodiscard]] bool open_trace(trace_log_options options);
  /// Ends the trace; does nothing without a trace. @throws as `trace_log::close`.
  void close_trace();

 private:
  struct trace;

  explicit data_handler(array_memory_options options);

  static data_handler& from(void* context) noexcept { return *static_cast<data_handler*>(context); }
  static void* allocate(void* context, std::size_t bytes) noexcept;
  static void* allocate_zeroed(void* context, std::size_t count, std::size_t bytes) noexcept;
  static void* reallocate(void* context, void* block, std::size_t bytes) noexcept;
  static void deallocate(void* context, void* block, std::size_t bytes) noexcept;

  [[nodiscard]] bool is_traced() const noexcept { return is_traced_.load(std::memory_order_relaxed); }
  [[nodiscard]] void* allocate_traced(std::size_t bytes, bool zeroed);
  void deallocate_traced(void* block) noexcept;
  [[nodiscard]] std::shared_ptr<trace> current_trace() noexcept;

  PyDataMem_Handler functions_;
  array_memory memory_;
  std::atomic<bool> is_traced_ = false;
  detail::fork_safe<> trace_mutex_;
  std::shared_ptr<trace> trace_;  // shared with running calls
};

}  // namespace tidemark::numpy
