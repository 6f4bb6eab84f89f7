// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_marks`: reports to tools which bytes of a chunk are allocated, for memory that the host does not
/// touch. Owns its records only. Defined if `TIDEMARK_NVTX` is on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/diagnose/detail/listening_tool.hpp>

namespace tidemark::detail {

/// Poisoning for device memory: compute-sanitizer detects bad accesses there. The tool knows heaps and
/// regions, not bytes.
///
/// The committed memory of the chunk is one heap, because compute-sanitizer accepts only whole allocations of
/// the driver. A commit beyond the heap opens a larger heap. A block is a region. Blocks are allocated in
/// ascending order and freed from the top, as in an arena. They are recorded beside the memory.
///
/// Unnamed last parameters exist for `byte_marks`, which has the same functions.
///
/// Invariants: blocks ascend and are disjoint; `blocks.empty()` until a tool accepts a heap.
///
/// Complexity: `on_allocate` O(1), others O(regions they open or free). Not thread-safe: one thread at a time.
class device_marks {
 public:
  /// Reserves room for one more block. @return false if out of memory
  [[nodiscard]] bool reserve() noexcept;
  /// True if one more block can be recorded without `reserve`.
  [[nodiscard]] bool has_room() const noexcept { return !heard_ || blocks_.size() < blocks_.capacity(); }

  /// Records a commit of `[first, last)`, which begins at the chunk's beginning or at its committed end.
  /// Reopens known blocks. @pre all known blocks end at or below `last`
  void on_commit(std::uintptr_t first, std::uintptr_t last, char const* name) noexcept;
  /// Reports that the memory at or above `from` is about to be freed. A heap that begins below stays whole,
  /// because heaps cannot be cut. Blocks stay known, because their memory may come back.
  void on_decommit(std::uintptr_t from, std::uintptr_t = 0) noexcept;
  /// Records a block above all others. @param bytes may be 0. @pre `has_room()`
  void on_allocate(std::uintptr_t block, std::size_t bytes) noexcept {
    if (heard_ && bytes != 0) open(block, bytes);
  }
  /// Changes the size of the newest block, which keeps its contents. @param bytes may be 0. @pre `has_room()`
  void on_resize(std::uintptr_t block, std::size_t bytes, std::size_t = 0) noexcept;
  /// Frees everything allocated at or above `from`. A block that extends below `from` is shortened.
  void on_free(std::uintptr_t from, std::uintptr_t = 0) noexcept {
    if (!blocks_.empty() && blocks_.back().end() > from) close(from);
  }

 private:
  void open(std::uintptr_t first, std::size_t bytes) noexcept;
  void close(std::uintptr_t from) noexcept;
  void resize(byte_range& known, std::size_t bytes) noexcept;

  bool heard_ = false;  // a tool has accepted a heap; blocks are recorded even while decommitted
  listening_tool::heap_id heap_ = 0;    // 0: no tool has accepted the memory
  std::uintptr_t begin_ = 0, end_ = 0;  // of the heap
  char const* name_ = "";               // name of the resource
  std::vector<byte_range> blocks_;
};

}  // namespace tidemark::detail
