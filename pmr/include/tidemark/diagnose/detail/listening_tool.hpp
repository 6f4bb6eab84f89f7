// SPDX-License-Identifier: Apache-2.0
/// @file
/// `listening_tool`: a replaceable table of the reports that tidemark sends to NVTX tools. Owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tidemark/core/config.hpp>

namespace tidemark::detail {

/// Receives reports about memory that the host does not touch.
///
/// A *heap* is committed memory. Only its *regions*, the allocated blocks in it, may be touched. A test may
/// derive from this class to observe the reports.
///
/// Thread-safe: any thread may call any function. Functions throw nothing.
class listening_tool {
 public:
  /// Identifies a heap; 0 if the tool does not watch it.
  using heap_id = std::uintptr_t;

  listening_tool() = default;
  listening_tool(listening_tool const&) = delete;
  listening_tool& operator=(listening_tool const&) = delete;

  /// True if `open_heap` accepts only memory that is exactly one allocation of `cudaMalloc` or
  /// `cudaMallocManaged`, as in compute-sanitizer.
  [[nodiscard]] virtual bool takes_whole_allocations_only() const noexcept { return false; }

  /// Reports committed memory without allocations. @param name name of its resource. @return 0 also if the
  /// tool refuses the memory.
  [[nodiscard]] virtual heap_id open_heap(std::uintptr_t first, std::size_t bytes,
                                          char const* name) noexcept = 0;
  /// Frees all regions of the heap.
  virtual void reset_heap(heap_id heap) noexcept = 0;
  /// Reports that the heap's memory, with any regions, is about to be freed.
  virtual void close_heap(heap_id heap) noexcept = 0;

  /// Reports an allocation of uninitialised bytes in the heap. @param name name of the heap's resource.
  /// @pre `bytes` is not 0.
  virtual void open_region(heap_id heap, std::uintptr_t first, std::size_t bytes,
                           char const* name) noexcept = 0;
  /// Changes the size of the region that begins at `first`. @pre `bytes` is not 0.
  virtual void resize_region(std::uintptr_t first, std::size_t bytes) noexcept = 0;
  /// Frees `n` regions. @pre `n <= max_closed`.
  static constexpr std::size_t max_closed = 64;
  virtual void close_regions(std::uintptr_t const* firsts, std::size_t n) noexcept = 0;

 protected:
  // Never deleted through this class. Without a virtual destructor the process's object is never destroyed.
  ~listening_tool() = default;
};

#if TIDEMARK_NVTX

/// The current tool: NVTX, until replaced.
[[nodiscard]] listening_tool& current_tool() noexcept;

/// Replaces the tool; null selects NVTX. @return the previous tool. @pre no heap is open.
/// Thread-safe.
listening_tool* set_current_tool(listening_tool* replacement) noexcept;

#endif

}  // namespace tidemark::detail
