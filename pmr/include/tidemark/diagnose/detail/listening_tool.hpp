// SPDX-License-Identifier: Apache-2.0
/// @file
/// `listening_tool`: what tidemark tells the tools that listen to NVTX, in one replaceable table. Owns
/// nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <tidemark/core/config.hpp>

namespace tidemark::detail {

/// What a named range is the life of. Tools get it as the range's category.
enum class range_kind : std::uint32_t {
  arena_scope = 1,
  workspace_scope = 2,
  epoch = 3,
};

/// Receives what happens to memory that the host does not touch, and named ranges of time.
///
/// A *heap* is memory that exists. Only its *regions*, the blocks that are allocated in it, may be touched. A
/// test may derive from it to see what a tool sees.
///
/// Every function may be called from any thread and throws nothing.
class listening_tool {
 public:
  /// Identifies a heap; 0: it is not watched.
  using heap_id = std::uintptr_t;
  /// Identifies a range; 0: it is not watched.
  using range_id = std::uint64_t;

  listening_tool() = default;
  listening_tool(listening_tool const&) = delete;
  listening_tool& operator=(listening_tool const&) = delete;

  /// True if `open_heap` accepts memory only as exactly one allocation of `cudaMalloc` or
  /// `cudaMallocManaged`: compute-sanitizer does so.
  [[nodiscard]] virtual bool takes_whole_allocations_only() const noexcept { return false; }

  /// Memory was committed, and none of it is allocated. @param name of its resource. @return 0 also if the
  /// tool refuses the memory.
  [[nodiscard]] virtual heap_id open_heap(std::uintptr_t first, std::size_t bytes,
                                          char const* name) noexcept = 0;
  /// All regions of the heap were freed.
  virtual void reset_heap(heap_id heap) noexcept = 0;
  /// The memory is about to go, with regions if there are any.
  virtual void close_heap(heap_id heap) noexcept = 0;

  /// Bytes of the heap were allocated and are uninitialised. @param name of the heap's resource.
  /// @pre `bytes` is not 0.
  virtual void open_region(heap_id heap, std::uintptr_t first, std::size_t bytes,
                           char const* name) noexcept = 0;
  /// The region that begins at `first` has another size. @pre `bytes` is not 0.
  virtual void resize_region(std::uintptr_t first, std::size_t bytes) noexcept = 0;
  /// `n` regions were freed. @pre `n <= max_closed`.
  static constexpr std::size_t max_closed = 64;
  virtual void close_regions(std::uintptr_t const* firsts, std::size_t n) noexcept = 0;

  /// A range begins. Ranges of a thread need not nest, and may end on another.
  [[nodiscard]] virtual range_id begin_range(range_kind kind, char const* name) noexcept = 0;
  /// It ends.
  virtual void end_range(range_id range) noexcept = 0;

 protected:
  // Never deleted through this class; and without a virtual destructor the process's one is never destroyed.
  ~listening_tool() = default;
};

#if TIDEMARK_NVTX

/// The tool in use: NVTX, until it is replaced.
[[nodiscard]] listening_tool& current_tool() noexcept;

/// Replaces the tool, and returns the one before; null: NVTX. @pre no heap and no range is open. Thread-safe.
listening_tool* set_current_tool(listening_tool* replacement) noexcept;

/// False once NVTX has shown that no tool listens to ranges, so that they cost a load and a branch.
extern std::atomic<bool> ranges_are_heard;

#endif

}  // namespace tidemark::detail
