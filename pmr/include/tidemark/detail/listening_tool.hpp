// SPDX-License-Identifier: Apache-2.0
/// @file
/// `listening_tool`: what tidemark tells the tools that listen to NVTX, in one replaceable table. Owns
/// nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <tidemark/config.hpp>

namespace tidemark::detail {

/// What a named range is the life of. Tools get it as the range's category.
enum class range_kind : std::uint32_t {
  arena_scope = 1,
  workspace_scope = 2,
  epoch = 3,
};

/// Is told of memory that the host does not touch, and of stretches of time that have a name.
///
/// A *heap* is memory that is there. Nobody may touch it but for its *regions*, the blocks that are
/// handed out of it. Who derives from it sees what a tool sees, and may check it.
///
/// Every function may be called from any thread and throws nothing.
class listening_tool {
 public:
  /// Stands for a heap in the calls to come; 0: it is not watched.
  using heap_id = std::uintptr_t;
  /// Stands for a range in the call that ends it; 0: it is not watched.
  using range_id = std::uint64_t;

  listening_tool() = default;
  listening_tool(listening_tool const&) = delete;
  listening_tool& operator=(listening_tool const&) = delete;

  /// Memory came, and none of it is handed out. @param name of what hands it out.
  [[nodiscard]] virtual heap_id open_heap(std::uintptr_t first, std::size_t bytes,
                                          char const* name) noexcept = 0;
  /// Nothing of the heap is handed out any more: its regions are gone.
  virtual void reset_heap(heap_id heap) noexcept = 0;
  /// The memory is about to go, with regions if there are any.
  virtual void close_heap(heap_id heap) noexcept = 0;

  /// Bytes that lie in the heap are handed out. What they hold is nothing. @pre `bytes` is not 0.
  virtual void open_region(heap_id heap, std::uintptr_t first, std::size_t bytes) noexcept = 0;
  /// A region, which its first byte stands for, ends elsewhere now. @pre `bytes` is not 0.
  virtual void resize_region(std::uintptr_t first, std::size_t bytes) noexcept = 0;
  /// `n` regions were taken back.
  virtual void close_regions(std::uintptr_t const* firsts, std::size_t n) noexcept = 0;

  /// A range begins. Ranges of a thread need not nest, and may end on another.
  [[nodiscard]] virtual range_id begin_range(range_kind kind, char const* name) noexcept = 0;
  /// It ends.
  virtual void end_range(range_id range) noexcept = 0;

 protected:
  // Nobody owns one as such; and without a virtual destructor the one of the process lives as long as it
  // does.
  ~listening_tool() = default;
};

#if TIDEMARK_NVTX

/// The tool in use: whoever listens to NVTX, until it is replaced.
[[nodiscard]] listening_tool& current_tool() noexcept;

/// Replaces the tool, and returns the one before; null stands for whoever listens to NVTX. @pre nothing
/// is open that was told to the one before. Thread-safe.
listening_tool* set_current_tool(listening_tool* replacement) noexcept;

/// False once it has turned out that no tool listens to ranges, so that they cost a load and a branch.
extern std::atomic<bool> ranges_are_heard;

#endif

}  // namespace tidemark::detail
